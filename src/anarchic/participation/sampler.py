"""The paper's sampler: rounds of m workers, without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.random import Generator

from anarchic.core.types import Floats, Ints
from anarchic.errors import ConfigError
from anarchic.participation.distinct import any_workers, distinct_workers, running_sums
from anarchic.participation.timetable import Timetable, check_rounds, running_numbers
from anarchic.participation.work import StepPolicy

_BLOCK_ROWS = 1 << 20  # rows drawn at a time; another value gives other tables for the same seed


@final
@dataclass(frozen=True)
class Sampler:
    """Each round, m of M workers report, each from a recent version.

    Workers are drawn uniformly or with ``probabilities``, with or without replacement; without,
    by successive draws among those not yet in the round. The base version is uniform among the
    newest version and the ``max_staleness`` versions before it, as far as they exist: 0 is the
    synchronous case, 4 the paper's asynchronous one.

    Reference: Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022,
    arXiv:2108.09875, experiments. Departs from it in: nothing; what the paper leaves open (that
    early rounds draw among the versions that exist, and successive draws) is settled as said here.
    """

    workers: int
    m: int
    steps: StepPolicy
    max_staleness: int = 0
    replace: bool = False
    probabilities: Sequence[float] | Floats | None = None

    def __post_init__(self) -> None:
        if self.workers < 1 or self.m < 1 or self.max_staleness < 0:
            raise ConfigError(
                "Sampler needs workers >= 1, m >= 1 and max_staleness >= 0, got "
                f"{self.workers}, {self.m} and {self.max_staleness}."
            )
        if not self.replace and self.m > self.workers:
            raise ConfigError(
                f"Cannot draw m={self.m} of {self.workers} workers without replacement; lower m "
                "or set replace=True."
            )
        if self.probabilities is not None:
            self._check_probabilities(np.asarray(self.probabilities, np.float64))

    def timetable(self, rng: Generator | int, rounds: int) -> Timetable:
        """A timetable of ``rounds`` rounds; ``rng`` may be a seed."""
        check_rounds(rounds)
        rng = np.random.default_rng(rng)
        worker, base, steps = (np.empty((rounds, self.m), np.int32) for _ in range(3))
        block = max(1, _BLOCK_ROWS // self.m)
        for start in range(0, rounds, block):
            part = slice(start, min(start + block, rounds))
            shape, versions = worker[part].shape, np.arange(part.start, part.stop, dtype=np.int32)
            worker[part] = self._draw_workers(rng, shape)
            base[part] = self._draw_bases(rng, versions, shape)
            steps[part] = self.steps.draw(rng, shape)
        workers, bases, drawn = (column.reshape(-1) for column in (worker, base, steps))
        return Timetable(self.workers, self.m, workers, running_numbers(workers), bases, drawn)

    def _draw_workers(self, rng: Generator, shape: tuple[int, int]) -> Ints:
        given = self.probabilities
        probabilities = None if given is None else np.asarray(given, np.float64)
        if not self.replace:
            return distinct_workers(rng, self.workers, shape, probabilities)
        cumulative = None if probabilities is None else running_sums(probabilities)
        return any_workers(rng, self.workers, shape, cumulative)

    def _draw_bases(self, rng: Generator, version: Ints, shape: tuple[int, int]) -> Ints:
        newest = version[:, None]
        if self.max_staleness == 0:
            return np.broadcast_to(newest, shape)
        choices = np.minimum(newest, self.max_staleness) + 1
        return newest - rng.integers(0, choices, shape, dtype=np.int32)

    def _check_probabilities(self, given: Floats) -> None:
        if given.shape != (self.workers,):
            raise ConfigError(
                f"Sampler needs one probability for each of {self.workers} workers, got an array "
                f"of shape {given.shape}."
            )
        if not (given >= 0).all():  # NaN too
            raise ConfigError(
                f"Probabilities must be >= 0; worker {int(np.argmin(given >= 0))} has "
                f"{given[np.argmin(given >= 0)]}."
            )
        if abs(given.sum() - 1) > 1e-6:
            raise ConfigError(
                f"Probabilities must sum to 1, got {given.sum():.9g}; divide them by their sum."
            )
        possible = int(np.count_nonzero(given))
        if not self.replace and possible < self.m:
            raise ConfigError(
                f"Cannot draw m={self.m} different workers when only {possible} have a "
                "probability above 0; lower m or set replace=True."
            )
