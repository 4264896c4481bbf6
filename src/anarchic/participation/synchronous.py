"""Classical synchronous rounds under stragglers, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anarchic.core.types import Floats, Ints
from anarchic.errors import ConfigError
from anarchic.participation.sampler import distinct_workers
from anarchic.participation.timetable import Timetable, check_rounds, running_numbers
from anarchic.participation.work import Work, draw_steps


@final
@dataclass(frozen=True)
class Synchronous:
    """Synchronous FedAvg: each round the server picks m of M workers and waits for all of them.

    The round lasts as long as the slowest. A worker drops out in mid-work with probability
    ``lost_share``. The server is not told: it waits ``timeout_s`` from the moment it picked the
    worker, then draws a replacement among the workers that have no other place in the round. It
    waits for workers that are only slow.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS 2017. Departs from it in: work takes time, workers drop out.
    """

    workers: int
    m: int
    work: Work
    lost_share: float = 0.0
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.m <= self.workers:
            raise ConfigError(
                f"A round needs 1 <= m <= workers, got m={self.m} of {self.workers} workers."
            )
        if not 0 <= self.lost_share < 1:
            raise ConfigError(f"Synchronous needs 0 <= lost_share < 1, got {self.lost_share}.")
        if self.lost_share > 0 and self.timeout_s is None:
            raise ConfigError(
                f"With lost_share={self.lost_share} a round could wait for ever; give Synchronous "
                "a timeout_s."
            )
        if self.timeout_s is not None and not 0 < self.timeout_s < np.inf:
            raise ConfigError(f"Synchronous needs 0 < timeout_s < inf, got {self.timeout_s}.")

    def timetable(self, rng: Generator | int, rounds: int) -> Timetable:
        """A timetable of ``rounds`` rounds; ``rng`` may be a seed."""
        check_rounds(rounds)
        rng = np.random.default_rng(rng)
        factor = self.work.speeds.draw(rng, self.workers)
        worker = distinct_workers(rng, self.workers, (rounds, self.m))
        steps, seconds = self._work(rng, worker, factor[worker])
        picked_s = np.zeros(worker.shape)  # since the round began
        failed = rng.random(worker.shape) < self.lost_share
        while failed.any():
            assert self.timeout_s is not None
            picked_s[failed] += self.timeout_s
            _replace(rng, self.workers, worker, failed)
            steps[failed], seconds[failed] = self._work(rng, worker[failed], factor[worker[failed]])
            failed[failed] = rng.random(np.count_nonzero(failed)) < self.lost_share
        return timetable_of_rounds(self.workers, worker, steps, picked_s, picked_s + seconds)

    def _work(self, rng: Generator, worker: Ints, factor: Floats) -> tuple[Ints, Floats]:
        steps = draw_steps(self.work.steps, rng, worker)
        return steps, self.work.draw_seconds(rng, steps, factor)


def timetable_of_rounds(
    workers: int, worker: Ints, steps: Ints, pull_s: Floats, push_s: Floats
) -> Timetable:
    """The timetable of rounds that follow each other; all arguments (rounds, m).

    Times count from the beginning of each round; a round ends with its last push.
    """
    rounds, m = worker.shape
    # Running sums, so that a round begins at exactly the last push of the one before.
    begins = np.concatenate(([0.0], np.cumsum(push_s.max(axis=1))))[:-1, None]
    order = np.lexsort((worker, push_s), axis=1)
    columns = worker, steps, begins + pull_s, begins + push_s
    ordered: list[Any] = [np.take_along_axis(each, order, axis=1).reshape(-1) for each in columns]
    base = np.repeat(np.arange(rounds, dtype=np.int32), m)
    return Timetable(workers, m, ordered[0], running_numbers(ordered[0]), base, *ordered[1:])


def _replace(rng: Generator, workers: int, worker: Ints, failed: NDArray[np.bool_]) -> None:
    """Replace the failed workers of each round, in place."""
    for place in range(worker.shape[1]):  # one place at a time: its replacements never clash
        rounds = np.flatnonzero(failed[:, place])
        others = np.sort(np.delete(worker[rounds], place, axis=1), axis=1)
        # The i-th worker that is not among the others: step over those at or below it.
        free = rng.integers(0, workers - others.shape[1], len(rounds), dtype=np.int32)
        below = others - np.arange(others.shape[1], dtype=np.int32) <= free[:, None]
        worker[rounds, place] = free + np.count_nonzero(below, axis=1)
