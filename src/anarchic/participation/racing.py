"""The paper's reading of an anarchic round under stragglers: the fastest m of M."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.random import Generator

from anarchic.participation.synchronous import check_round, timetable_of_rounds
from anarchic.participation.timetable import Timetable, check_rounds
from anarchic.participation.work import Work

_BLOCK_DRAWS = 1 << 20  # work times drawn at a time


@final
@dataclass(frozen=True)
class Racing:
    """Each round all M workers start afresh and the fastest m end it; the others' work is void.

    With exponential work times of mean 1 a round lasts H_M - H_(M-m) on average: 0.646 for 5 of 10.
    This is the reading that gives the paper's "1/2.6 of FedAvg's time" (arXiv:2108.09875,
    experiments). Departs from anarchic participation in: workers wait for the server.
    """

    workers: int
    m: int
    work: Work

    def __post_init__(self) -> None:
        check_round(self.workers, self.m)

    def timetable(self, rng: Generator | int, rounds: int) -> Timetable:
        """A timetable of ``rounds`` rounds; ``rng`` may be a seed."""
        check_rounds(rounds)
        rng = np.random.default_rng(rng)
        factor = self.work.speeds.draw(rng, self.workers)
        worker = np.empty((rounds, self.m), np.int32)
        steps = np.empty_like(worker)
        push_s = np.empty(worker.shape)
        block = max(1, _BLOCK_DRAWS // self.workers)
        for start in range(0, rounds, block):
            part = slice(start, min(start + block, rounds))
            factors = np.broadcast_to(factor, (part.stop - part.start, self.workers))
            all_steps = self.work.draw_steps(rng, factors)
            seconds = self.work.draw_seconds(rng, all_steps, factors)
            # Stable, so that ties go to the lower worker number.
            fastest = np.argsort(seconds, axis=1, kind="stable")[:, : self.m]
            worker[part] = fastest
            steps[part] = np.take_along_axis(all_steps, fastest, axis=1)
            push_s[part] = np.take_along_axis(seconds, fastest, axis=1)
        return timetable_of_rounds(self.workers, worker, steps, np.zeros(push_s.shape), push_s)
