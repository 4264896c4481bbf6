"""How good a model is for each worker: on samples that the worker set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anarchic.core.types import Floats, Integers
from anarchic.data.checks import IGNORED
from anarchic.data.dataset import Dataset
from anarchic.train.metrics import Array, class_axis

SHARE = 0.2  # of a worker's samples
WORST = 0.1  # of the workers


@dataclass(frozen=True)
class HeldOut:
    """The samples that workers set aside, one worker after another."""

    index: Integers  # numbers of training samples
    counts: Integers  # (workers,)
    names: tuple[str, ...] = ()  # of the workers, where each holds the samples of one role

    @property
    def owner(self) -> Integers:
        """(samples,): whose each is."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def by_worker(self) -> Iterator[tuple[int, Integers]]:
        """Every worker that set samples aside, and these."""
        ends = np.cumsum(self.counts).tolist()
        for worker, (end, count) in enumerate(zip(ends, self.counts.tolist(), strict=True)):
            if count:
                yield worker, self.index[end - count : end]


def names_of(parts: Sequence[Integers], data: Dataset) -> tuple[str, ...]:
    """The roles of the workers, if each holds samples of one role, and each of another."""
    if not data.roles:
        return ()
    found = [np.unique(data.role_train[part]) for part in parts]
    roles = [int(each[0]) for each in found if len(each) == 1]
    if len(set(roles)) < len(parts) or min(roles) < 0:
        return ()
    return tuple(data.roles[role] for role in roles)


def hold_out(
    parts: Sequence[Integers], data: Dataset | None = None
) -> tuple[list[Integers], HeldOut]:
    """What workers keep to train on, and the fifth of their samples that they set aside.

    The choice depends on the number of the worker and of its samples alone. A worker with a single
    sample sets nothing aside. Workers have the names of their roles in ``data``.
    """
    kept, aside = [], []
    for worker, part in enumerate(parts):
        samples = np.asarray(part)
        count = 0 if len(samples) < 2 else max(1, round(SHARE * len(samples)))
        order = np.random.default_rng([worker, len(samples)]).permutation(len(samples))
        aside.append(np.sort(samples[order[:count]]))
        kept.append(np.sort(samples[order[count:]]))
    counts = np.array([len(each) for each in aside], np.int64)
    names = () if data is None else names_of(parts, data)
    return kept, HeldOut(np.concatenate(aside), counts, names)


def worker_values(
    held: HeldOut, outputs: Array, targets: Array, loss: Callable[[Array, Array], Any]
) -> tuple[str, Floats]:
    """Accuracy of every worker where the targets are classes, the loss otherwise; NaN for none."""
    axis = class_axis(outputs, targets)
    if axis is not None:
        right, counted = outputs.argmax(axis) == targets, targets != IGNORED
        hits, labels = (_sums(held, each) for each in (right, counted))
        with np.errstate(invalid="ignore"):
            return "accuracy", hits / labels
    ends = np.cumsum(held.counts)
    pieces = [slice(end - count, end) for end, count in zip(ends, held.counts, strict=True)]
    found = [
        float(loss(outputs[own], targets[own])) if own.stop > own.start else np.nan
        for own in pieces
    ]
    return "loss", np.array(found, np.float64)


def _sums(held: HeldOut, each: Array) -> Floats:
    """(workers,): of how many labels of a worker's samples it is true."""
    counts = np.asarray(each.reshape(len(each), -1).sum(-1), np.float64)
    return np.asarray(np.bincount(held.owner, counts, len(held.counts)), np.float64)


def spread(measure: str, values: Floats) -> dict[str, float]:
    """Mean over workers, mean of the worst tenth of them, and standard deviation."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return {}
    if measure == "loss":  # the larger, the worse
        known = known[::-1]
    worst = known[: max(1, round(WORST * len(known)))]
    return {
        "workers_mean": float(known.mean()),
        "workers_worst_tenth": float(worst.mean()),
        "workers_spread": float(known.std()),
    }
