"""The data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import signature

from anarchic.data.cifar10 import load_cifar10
from anarchic.data.dataset import Dataset
from anarchic.data.digits import load_digits
from anarchic.data.mnist import load_fashion_mnist, load_mnist
from anarchic.data.shakespeare import load_shakespeare
from anarchic.data.synthetic import load_synthetic
from anarchic.errors import ConfigError

DATASETS: Mapping[str, Callable[..., Dataset]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "shakespeare": load_shakespeare,
    "synthetic": load_synthetic,
}
"""Name -> loader; a loader takes ``data_dir`` and its own options."""


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **options: object) -> Dataset:
    """Load a data set by name; ``options`` are those of its loader.

    >>> load("digits").x_train.shape
    (1437, 1, 8, 8)
    """
    if name not in DATASETS:
        raise ConfigError(
            f"There is no data set {name!r}.{_nearest(name, DATASETS)} Known: "
            f"{', '.join(DATASETS)}."
        )
    known = [option for option in signature(DATASETS[name]).parameters if option != "data_dir"]
    for option in options:
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{_nearest(option, known)} Its options: "
                f"{', '.join(known) or 'none'}."
            )
    return DATASETS[name](data_dir, **options)


def _nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
