"""Visits: the output of a participation process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from anarchic.core.types import Bools, Floats, Ints
from anarchic.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits: which worker pulled when, took how many local steps, and pushed when.

    The visits of one worker are in the order in which it made them; workers may be mixed. A visit
    that was lost in mid-work has ``push_s = inf``.
    """

    worker: Ints  # (n,)
    pull_s: Floats  # (n,)
    push_s: Floats  # (n,)
    local_steps: Ints  # (n,)

    def __len__(self) -> int:
        return len(self.worker)

    @property
    def columns(self) -> tuple[Any, ...]:
        return self.worker, self.pull_s, self.push_s, self.local_steps

    def __getitem__(self, rows: Bools) -> Visits:
        return Visits(*(column[rows] for column in self.columns))

    @property
    def lost(self) -> Bools:
        """Which visits never push."""
        return np.isinf(self.push_s)

    def until(self, horizon_s: float) -> Visits:
        """Visits that pushed up to the horizon, and lost visits that pulled before it."""
        known = (self.push_s <= horizon_s) | (self.lost & (self.pull_s < horizon_s))
        return self if known.all() else self[known]

    def check(self, workers: int) -> None:
        """Refuse visits of unknown workers, with impossible times, or without local steps."""
        shapes = [column.shape for column in self.columns]
        if len(set(shapes)) != 1 or self.worker.ndim != 1:
            raise ConfigError(
                f"The columns of visits must be vectors of one length, got shapes {shapes}."
            )
        if not len(self):
            return
        if self.worker.min() < 0 or self.worker.max() >= workers:
            raise ConfigError(
                f"Visits name workers {self.worker.min()}..{self.worker.max()}, but the population "
                f"is 0..{workers - 1}. Renumber them or raise `workers`."
            )
        possible = np.isfinite(self.pull_s) & (self.pull_s <= self.push_s)
        if not possible.all():
            row = int(np.argmin(possible))
            raise ConfigError(
                f"Visit {row} pulls at {self.pull_s[row]} s and pushes at {self.push_s[row]} s; a "
                "visit pulls at a finite time and pushes no earlier (inf if it was lost)."
            )
        if self.local_steps.min() < 1:
            raise ConfigError(
                f"A visit has {self.local_steps.min()} local steps; leave out visits without work."
            )

    @staticmethod
    def join(parts: Sequence[Visits]) -> Visits:
        """Concatenate visits."""
        if not parts:
            return Visits(np.zeros(0, np.int32), np.zeros(0), np.zeros(0), np.zeros(0, np.int32))
        return Visits(*map(np.concatenate, zip(*(part.columns for part in parts), strict=True)))


@dataclass(frozen=True, eq=False)
class Drawn:
    """Visits as they were drawn, with what is needed to move them to another time."""

    visits: Visits
    end_s: Floats  # (n,) end of the work, also where it is lost by then or cut short by a window
    free_s: Floats  # (n,) when the worker begins to idle again
    failed: Bools  # (n,) lost in mid-work, wherever it is moved to

    @staticmethod
    def of(visits: Visits) -> Drawn:
        """Visits of any origin: how long a lost one worked is not known, so it takes no time."""
        end_s = np.where(visits.lost, visits.pull_s, visits.push_s)
        return Drawn(visits, end_s, end_s, visits.lost)

    @staticmethod
    def join(parts: Sequence[Drawn]) -> Drawn:
        """Concatenate."""
        visits = Visits.join([part.visits for part in parts])
        if not parts:
            return Drawn.of(visits)
        rest = ((part.end_s, part.free_s, part.failed) for part in parts)
        return Drawn(visits, *map(np.concatenate, zip(*rest, strict=True)))


class VisitStream(Protocol):
    """Makes visits as time goes on; keeps the state of the workers, not the visits made so far."""

    @property
    def next_s(self) -> float:
        """Time of the next pull, inf if no worker comes again."""

    def until(self, horizon_s: float) -> Visits:
        """The visits that pull before the horizon and that no earlier call returned."""


class Participation(Protocol):
    """A participation process in continuous time; it knows nothing of models or servers."""

    @property
    def pace_s(self) -> float:
        """Rough time between two pushes of a worker; the first guess of a horizon."""

    def begin(self, rng: Generator, workers: int) -> VisitStream:
        """All workers at time 0."""
