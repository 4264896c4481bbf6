"""W1 to W4: what every contestant trains, and the files they all read it from.

The data is dealt once, by ``prepare``, and written down with the parameters that training starts
from, so that every contestant has the same samples, the same start and the same work. Reading
them needs nothing but NumPy: peers live in environments of their own.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PLACE = Path(".bench")  # of environments and dealt data, in the root of the repository


@dataclass(frozen=True)
class Workload:
    """``m`` of ``workers`` per round, each with ``steps`` local steps of plain SGD.

    ``least_gain`` is what the test accuracy has to gain before a time counts: a benchmark of
    something that does not train is void.
    """

    name: str
    title: str
    data: str
    model: str
    workers: int
    m: int
    steps: int  # K
    batch: int
    lr: float  # eta_L
    rounds: int
    labels: int | None  # classes a worker holds; None: as the data set is parted by nature
    least_gain: float

    @property
    def local_steps(self) -> int:
        return self.rounds * self.m * self.steps


W1 = Workload(
    "W1", "LR/MNIST, 10 workers, 5 per round", "mnist", "logistic",
    workers=10, m=5, steps=5, batch=64, lr=0.1, rounds=150, labels=2, least_gain=0.6,
)  # fmt: skip
W2 = replace(W1, name="W2", title="LR/MNIST, 100 workers, 20 per round", workers=100, m=20)
W3 = Workload(
    "W3", "CNN/CIFAR-10 of 28x28, 10 workers, 5 per round", "cifar10", "cnn",
    workers=10, m=5, steps=5, batch=50, lr=0.1, rounds=10, labels=10, least_gain=0.05,
)  # fmt: skip
W4 = Workload(
    "W4", "LSTM/Shakespeare, 143 workers, 72 per round", "shakespeare", "lstm",
    workers=143, m=72, steps=5, batch=10, lr=0.8, rounds=2, labels=None, least_gain=0.05,
)  # fmt: skip
WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W4)}


@dataclass(frozen=True)
class Held:
    """The samples of all workers, one worker after another, the test samples, and the start."""

    x: Array
    y: Array
    ends: Array  # (workers,): where the samples of each end
    x_test: Array
    y_test: Array
    classes: Array  # one number
    start: dict[str, Array]  # parameters by the names and shapes that PyTorch gives them

    def parts(self) -> list[tuple[Array, Array]]:
        """Inputs and labels of every worker."""
        cuts = self.ends[:-1]
        return list(zip(np.split(self.x, cuts), np.split(self.y, cuts), strict=True))


def prepare(workload: Workload, place: Path = PLACE) -> Path:
    """Deal the data of a workload and write it down."""
    from anarchic.data import by_role, labels, load
    from anarchic.models import make

    data = load(workload.data)
    if workload.data == "cifar10":  # the middle: 28x28 is what the paper's dense layer fits
        middle = np.s_[:, :, 2:30, 2:30]
        data = replace(data, x_train=data.x_train[middle], x_test=data.x_test[middle])
    by_nature = workload.labels is None
    parts = (
        by_role(data) if by_nature else labels(data.y_train, workload.workers, workload.labels, 0)
    )
    dealt = np.concatenate(parts)
    x, x_test = data.x_train[dealt], data.x_test
    if workload.model == "logistic":
        x, x_test = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
    module = make(workload.model, data)
    start = {f"start.{name}": value.numpy() for name, value in module.state_dict().items()}
    path = place / "data" / f"{workload.name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = np.cumsum([len(part) for part in parts])
    arrays = {"x": x, "y": data.y_train[dealt], "x_test": x_test, "y_test": data.y_test}
    np.savez(path, ends=ends, classes=data.classes, **arrays, **start)
    return path


def held(workload: Workload, place: Path = PLACE) -> Held:
    with np.load(place / "data" / f"{workload.name}.npz") as found:
        arrays = dict(found)
    start = {name[6:]: arrays.pop(name) for name in list(arrays) if name.startswith("start.")}
    return Held(**arrays, start=start)


class Clock:
    """A moment before the first round and one after every round.

    It is made when imports are done and the data are read: what passes until the first moment is
    the time that a contestant takes to get ready.
    """

    def __init__(self) -> None:
        self.made = time.perf_counter()
        self.moments: list[float] = []

    def mark(self) -> None:
        self.moments.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Of all rounds."""
        return self.moments[-1] - self.moments[0]

    @property
    def warm_share(self) -> tuple[float, float]:
        """The seconds of the last nine tenths of the rounds, and which share of them that is."""
        rounds = len(self.moments) - 1
        skipped = -(-rounds // 10)
        return self.moments[-1] - self.moments[skipped], (rounds - skipped) / rounds


def asked() -> tuple[Workload, Path, list[str]]:
    """What a contestant is told on its command line: a workload, a file, and its own settings."""
    name, rounds, into, *rest = sys.argv[1:]
    return replace(WORKLOADS[name], rounds=int(rounds)), Path(into), rest


def report(
    into: Path,
    clock: Clock,
    params: dict[str, Array],
    *,
    local_steps: int,
    versions: dict[str, str],
) -> None:
    """Hand in the time of a run and the model it ended with; the runner tests the model.

    Two rates, in local steps per second: of all rounds, and of all but the first tenth of them, in
    which compilers and caches warm up.
    """
    np.savez(into.with_suffix(".npz"), **params)
    seconds, share = clock.warm_share
    found = {
        "seconds": clock.seconds,
        "ready_s": clock.moments[0] - clock.made,
        "rate": local_steps / clock.seconds,
        "warm_rate": local_steps * share / seconds,
        "versions": versions,
    }
    into.write_text(json.dumps(found) + "\n", encoding="utf-8")
