"""Workers in continuous time, put together from small parts; some fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.random import Generator

from anarchic.core.options import says_options
from anarchic.core.types import Bools, Floats, Rows
from anarchic.errors import ConfigError
from anarchic.participation.availability import Availability
from anarchic.participation.idle import Idle
from anarchic.participation.visits import Drawn, Visits, VisitStream
from anarchic.participation.work import Work, draw_steps


@final
@dataclass(frozen=True, slots=True)
class Dropout:
    """A visit is lost in mid-work with probability ``lost_share``; the worker then idles as usual.

    After any visit, lost or not, a worker leaves for ever with probability ``leave``.
    """

    lost_share: float = 0.0
    leave: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("lost_share", self.lost_share), ("leave", self.leave)):
            if not 0 <= value < 1:
                raise ConfigError(
                    f"Dropout needs 0 <= {name} < 1, got {value}; at 1 no update would arrive."
                )

    def loses(self, rng: Generator, work_s: Floats) -> Bools:
        """Which visits are lost. Shortens their ``work_s``, in place, to a uniform part of it."""
        if self.lost_share == 0:
            return np.zeros(len(work_s), np.bool_)
        # One draw does both: given u < lost_share, u / lost_share is uniform.
        u = rng.random(len(work_s))
        lost = u < self.lost_share
        work_s[lost] *= u[lost] / self.lost_share
        return lost

    def stays(self, rng: Generator, workers: int) -> Bools:
        """Which of this many workers come again."""
        return rng.random(workers) >= self.leave


@says_options
@final
@dataclass(frozen=True)
class ContinuousTime:
    """Every worker idles, pulls, works, pushes, and begins again.

    ``idle`` draws when a worker pulls, ``work`` how many local steps it takes and how long they
    last. Visits may fail (``dropout``) or be confined to the windows of a trace (``availability``):
    idle time then counts only while the worker is available, and a visit that does not end within
    its window is lost. All workers begin idle at time 0.
    """

    idle: Idle
    work: Work
    dropout: Dropout = field(default_factory=Dropout)
    availability: Availability | None = None

    @property
    def pace_s(self) -> float:
        pace = self.work.pace_s(self.idle.mean_s) / (1 - self.dropout.lost_share)
        return pace if self.availability is None else pace / self.availability.share

    def visits(self, rng: Generator, workers: int, horizon_s: float) -> Visits:
        """All pushes up to the horizon."""
        if not 0 <= horizon_s < np.inf:
            raise ConfigError(f"Visits need a finite horizon_s >= 0, got {horizon_s}.")
        return self.begin(rng, workers).until(horizon_s).until(horizon_s)

    def begin(self, rng: Generator, workers: int) -> VisitStream:
        """All workers at time 0."""
        if workers < 1:
            raise ConfigError(f"Visits need workers >= 1, got {workers}.")
        if self.availability is not None:
            self.availability.check(workers)
        return _ContinuousVisits(self, rng, workers)


class _ContinuousVisits:
    """Draws visits as time goes on; keeps a few numbers per worker and no visits.

    Visits are drawn in waves: one visit of each worker whose next pull lies before the horizon,
    repeated until there is none.
    """

    def __init__(self, process: ContinuousTime, rng: Generator, workers: int) -> None:
        self._process = process
        self._rng = rng
        self._factor = process.work.speeds.draw(rng, workers)
        self._traits = process.idle.traits(rng, workers)
        self._pull_s = np.empty(workers)  # of the next visit; inf for workers that have left
        windows = 0 if process.availability is None else workers
        self._until_s = np.empty(windows)  # end of the window of the next visit
        self._idle(np.arange(workers), np.zeros(workers))

    @property
    def next_s(self) -> float:
        return float(self._pull_s.min())

    def until(self, horizon_s: float) -> Visits:
        return self.draw(horizon_s).visits

    def draw(self, horizon_s: float) -> Drawn:
        """The same visits, with what is needed to move them to another time."""
        waves = []
        rows = np.flatnonzero(self._pull_s < horizon_s)
        while len(rows):
            wave, rows = self._wave(rows)
            waves.append(wave)
            rows = rows[self._pull_s[rows] < horizon_s]
        return Drawn.join(waves)

    def pending_s(self, worker: int) -> float:
        """When a worker makes the first visit that is not drawn yet; inf if it has left."""
        return float(self._pull_s[worker])

    def moved_s(self, worker: int, free_s: float, pull_s: float, now_s: float) -> float:
        """When a worker pulls that is free at ``now_s`` instead of ``free_s``, by the same draw."""
        idle, windows = self._process.idle, self._process.availability
        if windows is not None:
            pull_s = free_s + windows.between(worker, free_s, pull_s)
        move: Callable[..., float] | None = getattr(idle, "moved_s", None)
        trait = float(self._traits[worker])
        moved = now_s + (pull_s - free_s) if move is None else move(trait, free_s, pull_s, now_s)
        if windows is not None:
            moved = windows.after_one(worker, now_s, moved - now_s)
        return max(moved, now_s)

    def closes_s(self, worker: int, now_s: float) -> float:
        """When the window ends in which a worker is now; not later than now if it is in none."""
        windows = self._process.availability
        return np.inf if windows is None else windows.closes_s(worker, now_s)

    def _wave(self, rows: Rows) -> tuple[Drawn, Rows]:
        """One visit of each of these workers, and those of them that stay."""
        process, rng = self._process, self._rng
        pull, factor = self._pull_s[rows], self._factor[rows]
        steps = draw_steps(process.work.steps, rng, rows)
        seconds = process.work.draw_seconds(rng, steps, factor)
        failed = process.dropout.loses(rng, seconds)
        work_end = end = pull + seconds
        lost = failed
        if process.availability is not None:
            until = self._until_s[rows]
            lost = failed | (end > until)
            end = np.minimum(end, until)
        visits = Visits(rows.astype(np.int32), pull, np.where(lost, np.inf, end), steps)
        wave = Drawn(visits, work_end, end, failed)
        if process.dropout.leave:
            stays = process.dropout.stays(rng, len(steps))
            self._pull_s[rows[~stays]] = np.inf
            rows, end = rows[stays], end[stays]
        self._idle(rows, end)
        return wave, rows

    def _idle(self, rows: Rows, free_s: Floats) -> None:
        """Draw when these workers, free since ``free_s``, pull next."""
        pull = self._process.idle.pulls(self._rng, self._traits[rows], free_s)
        if self._process.availability is not None:
            after, worker = self._process.availability.after, rows.astype(np.int32)
            pull, self._until_s[rows] = after(worker, free_s, pull - free_s)
        self._pull_s[rows] = pull
