"""FedProx's synthetic(alpha, beta): softmax regression whose true model differs by worker.

Worker k draws its own mean model and mean input, then its samples (Li et al., "Federated
Optimization in Heterogeneous Networks", arXiv:1812.06127, section 5.1):

    u_k ~ N(0, alpha)    W_k, b_k ~ N(u_k, 1)                        its true model
    B_k ~ N(0, beta)     v_k ~ N(B_k, 1)                             its mean input
    x ~ N(v_k, diag(j^-1.2))     y = argmax softmax(W_k x + b_k)     its samples

with 60 features, 10 classes and lognormal(4, 2) + 50 samples per worker. In the IID variant all
workers share one W, b ~ N(0, 1), and v_k = 0.
As published, alpha changes nothing: u_k adds the same number to the score of every class, which
changes no label. True models differ by the variance 1 around u_k, the same for any alpha.
Departs from it in: alpha and beta are variances, as printed; the published script takes them for
standard deviations, which is the same at the paper's 0 and 1 but not at its 0.5.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anarchic.data.dataset import Dataset, Folder
from anarchic.errors import ConfigError

_FEATURES = 60
_CLASSES = 10

Samples = tuple[NDArray[np.float32], NDArray[np.int64]]


def load_synthetic(
    data_dir: Folder = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    iid: bool = False,
    workers: int = 30,
    seed: int = 0,
) -> Dataset:
    """Samples of ``workers`` roles, of which the first 80 % of each train; reads no file.

    ``beta`` is how much the inputs of workers differ. ``alpha`` is part of the name and, as
    published, has no effect. With ``iid`` neither has an effect.
    """
    if workers < 1 or alpha < 0 or beta < 0:
        raise ConfigError(
            "synthetic needs workers >= 1, alpha >= 0 and beta >= 0, got "
            f"workers={workers}, alpha={alpha}, beta={beta}."
        )
    rng = np.random.default_rng(seed)
    counts = rng.lognormal(4, 2, workers).astype(np.int64) + 50
    if iid:
        model = rng.normal(size=(_CLASSES, _FEATURES + 1))
        drawn = [_samples(rng, int(n), model, np.zeros(_FEATURES)) for n in counts]
    else:
        drawn = [_worker(rng, int(n), alpha, beta) for n in counts]
    return _split("synthetic-iid" if iid else f"synthetic({alpha:g}, {beta:g})", drawn, counts)


def _worker(rng: Generator, samples: int, alpha: float, beta: float) -> Samples:
    model_mean = rng.normal(0, np.sqrt(alpha))
    input_mean = rng.normal(0, np.sqrt(beta))
    model = rng.normal(model_mean, 1, (_CLASSES, _FEATURES + 1))
    return _samples(rng, samples, model, rng.normal(input_mean, 1, _FEATURES))


def _samples(
    rng: Generator, samples: int, model: NDArray[np.float64], mean: NDArray[np.float64]
) -> Samples:
    """Draw inputs and label them; the last column of ``model`` is the bias."""
    deviation = np.arange(1, _FEATURES + 1) ** (-1.2 / 2)
    x = rng.normal(mean, deviation, (samples, _FEATURES))
    y = np.argmax(x @ model[:, :-1].T + model[:, -1], axis=1)  # softmax keeps the order
    return x.astype(np.float32), y


def _split(name: str, drawn: list[Samples], counts: NDArray[np.int64]) -> Dataset:
    train = counts * 4 // 5  # a worker's samples are independent, so any of them can train
    halves = [(x[:n], y[:n], x[n:], y[n:]) for (x, y), n in zip(drawn, train, strict=True)]
    x, y, x_test, y_test = map(np.concatenate, zip(*halves, strict=True))
    return Dataset(
        name,
        x,
        y,
        x_test,
        y_test,
        classes=_CLASSES,
        roles=tuple(f"worker-{k}" for k in range(len(drawn))),
        role_train=np.repeat(np.arange(len(drawn)), train),
        role_test=np.repeat(np.arange(len(drawn)), counts - train),
    )
