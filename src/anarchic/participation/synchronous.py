"""Classical synchronous rounds under stragglers, for comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anarchic.core.types import Floats, Ints
from anarchic.errors import ConfigError
from anarchic.participation.sampler import distinct_workers
from anarchic.participation.timetable import (
    Timetable,
    check_end,
    check_length,
    growing_blocks,
    running_numbers,
)
from anarchic.participation.work import Work, draw_steps

_BLOCK_ROWS = 1 << 20  # rows drawn at a time; another value gives other tables for the same seed


class _Rounds(NamedTuple):
    """Rounds that follow each other; all (rounds, m), times since the beginning of each round."""

    worker: Ints
    steps: Ints
    pull_s: Floats
    push_s: Floats

    def first(self, rounds: int | None) -> _Rounds:
        some = slice(rounds)
        return _Rounds(self.worker[some], self.steps[some], self.pull_s[some], self.push_s[some])

    @staticmethod
    def none(m: int) -> _Rounds:
        ints, floats = np.zeros((0, m), np.int32), np.zeros((0, m))
        return _Rounds(ints, ints, floats, floats)


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

    def timetable(
        self, rng: Generator | int, rounds: int | None = None, *, until_s: float | None = None
    ) -> Timetable:
        """A timetable of ``rounds`` rounds, or of those that end by ``until_s``.

        Of both, that of fewer rounds. A longer one begins with it. ``rng`` may be a seed.
        """
        check_end(rounds, until_s)
        rng = np.random.default_rng(rng)
        factor = self.work.speeds.draw(rng, self.workers)
        blocks: list[_Rounds] = [_Rounds.none(self.m)]
        end_s = 0.0
        for first, end in growing_blocks(self.m, _BLOCK_ROWS):
            if (rounds is not None and first >= rounds) or (
                until_s is not None and end_s > until_s
            ):
                break
            blocks.append(self._rounds(rng, factor, end - first))
            end_s += float(blocks[-1].push_s.max(axis=1).sum())
            check_length(end * self.m, until_s)
        drawn = _Rounds(*map(np.concatenate, zip(*blocks, strict=True)))
        table = timetable_of_rounds(self.workers, *drawn.first(rounds))
        table = table if until_s is None else table.cut(table.rounds_until(until_s))
        return replace(table, later=np.array([table.rounds], np.int32))

    def _rounds(self, rng: Generator, factor: Floats, rounds: int) -> _Rounds:
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
        return _Rounds(worker, steps, picked_s, picked_s + seconds)

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
