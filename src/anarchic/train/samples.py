"""Which training samples each worker holds, how batches are drawn, and data sets kept in use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import Integers
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.train.draws import MASK, Draws

Array = Any  # of the task's own kind: NumPy, or torch on some device
PIECE = 1024  # samples whose gradient is computed at once


def mean_over(pieces: Sequence[Integers], gradient: Callable[[Integers], Array]) -> Array:
    """The mean gradient over all samples, from the mean over each piece of them."""
    total = sum(len(piece) for piece in pieces)
    weighted = [gradient(piece) * (len(piece) / total) for piece in pieces]
    return sum(weighted[1:], start=weighted[0])


@dataclass(frozen=True)
class WorkerSamples:
    """The samples of all workers, one worker after another."""

    index: Integers  # numbers of the samples
    counts: Integers  # (workers,): how many of them each worker holds, n_i
    drawn_as: Integers  # (workers,): the number of each worker in its own run's random numbers

    @staticmethod
    def of(parts: Sequence[Integers], known: int) -> WorkerSamples:
        """From the samples of each worker, of which there are ``known``."""
        numbers = sample_numbers(parts, known)
        counts = np.array([len(part) for part in numbers], np.int64)
        index = np.concatenate(numbers)
        if not counts.all():
            raise ConfigError(
                f"Worker {counts.argmin()} holds no sample: give it one, or leave it out."
            )
        if index.min() < 0 or index.max() >= known:
            raise ConfigError(
                f"Workers hold the samples {index.min()} to {index.max()}, but the training "
                f"samples are numbered 0 to {known - 1}."
            )
        return WorkerSamples(index, counts, np.arange(len(parts)))

    def joined(self, others: Sequence[WorkerSamples]) -> WorkerSamples:
        """These workers and then the others, who draw what they draw on their own."""
        every = [(each.index, each.counts, each.drawn_as) for each in (self, *others)]
        return WorkerSamples(*map(np.concatenate, zip(*every, strict=True)))

    @cached_property
    def first(self) -> Integers:
        """(workers,): where the samples of each begin in ``index``."""
        return np.cumsum([0, *self.counts[:-1]])

    def pieces(self, worker: int) -> list[Integers]:
        """The samples of a worker, ``PIECE`` at a time."""
        first = int(self.first[worker])
        every = self.index[first : first + int(self.counts[worker])]
        return [every[at : at + PIECE] for at in range(0, len(every), PIECE)]

    def own(self, draws: Draws) -> Draws:
        """The draws by the numbers that the workers have in their own runs."""
        return replace(draws, worker=self.drawn_as[draws.worker])

    def pick(self, draws: Draws, batch: int, put: Callable[[Integers], Array]) -> Array:
        """(lanes, steps, batch) places in ``index``, where ``put`` puts them."""
        if draws.in_epochs:
            return put(self._pick_in_epochs(draws, batch))
        lanes = (len(draws.worker), 1, 1)
        held = put(self.counts[draws.worker].reshape(lanes))
        first = put(self.first[draws.worker].reshape(lanes))
        return first + replace(self.own(draws), put=put).below(held, "samples", batch)

    def _pick_in_epochs(self, draws: Draws, batch: int) -> Integers:
        """Each epoch of a visit goes through the worker's samples in a random order of its own.

        It has ceil(n_i / batch) batches. The last one is filled up from the beginning of that
        order, so that all have the same size: no sample is left out, a few come twice.
        """
        own, places = replace(self.own(draws), put=np.asarray), []
        for lane, worker in enumerate(draws.worker.tolist()):
            held, seed = int(self.counts[worker]), own.seed
            in_epoch = -(-held // batch)
            one = replace(
                own,
                seed=seed if isinstance(seed, int) else seed[lane : lane + 1],
                worker=own.worker[lane : lane + 1],
                visit=own.visit[lane : lane + 1],
                steps=-(-draws.steps // in_epoch),  # a key for each epoch and sample
            )
            order = np.argsort(one.bits("samples", held)[0], axis=1, kind="stable")
            filled = np.resize(np.arange(held), in_epoch * batch)
            steps = order[:, filled].reshape(-1, batch)[: draws.steps]
            places.append(self.first[worker] + steps)
        return np.stack(places)

    def lane_numbers(self, draws: Draws) -> Integers:
        """(lanes, 6): what the GPU kernels need to know of every lane, for one trip there."""
        own, lane = self.own(draws), draws.worker
        seeds = np.broadcast_to(np.asarray(own.seed, np.int64), len(lane))
        words = seeds & MASK, (seeds >> 32) & MASK
        columns = (*words, own.visit, own.worker, self.counts[lane], self.first[lane])
        return np.stack(columns, axis=1).astype(np.int64)

    @property
    def some(self) -> slice:
        """About a thousand places in ``index``."""
        return slice(None, None, max(1, len(self.index) // 1000))

    def digest(self, how: str, labels: NDArray[Any], some_inputs: NDArray[Any]) -> str:
        """Of all labels and of ``some`` inputs, in the order of ``index``."""
        parts = hashlib.sha256(f"{self.counts.tolist()} {how}".encode())
        for array in (labels, some_inputs):
            parts.update(np.ascontiguousarray(array).data)
        return parts.hexdigest()


def sample_numbers(parts: Sequence[Any], known: int) -> list[Integers]:
    """The numbers of the samples of each worker; a part may also be a mask of all ``known``."""
    found = []
    for worker, part in enumerate(parts):
        numbers = np.asarray(part)
        if numbers.dtype.kind == "b":
            if numbers.shape != (known,):
                raise ConfigError(
                    f"The mask of worker {worker} has shape {numbers.shape}, but there are {known} "
                    "training samples: give one value per sample, or numbers of samples."
                )
            numbers = np.flatnonzero(numbers)
        if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
            raise ConfigError(
                f"The part of worker {worker} has type {numbers.dtype} and shape {numbers.shape}: "
                "give a list of the numbers of its samples, or a mask of all training samples."
            )
        found.append(numbers)
    return found


T = TypeVar("T")

_FORMS: WeakKeyDictionary[Dataset, dict[Hashable, Any]] = WeakKeyDictionary()


def resident(data: Dataset, key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` gives for this data set and this key, as long as the data set is in use."""
    known = _FORMS.setdefault(data, {})
    if key not in known:
        known[key] = make()
    found: T = known[key]
    return found
