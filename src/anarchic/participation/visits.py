"""Visits: what a participation process makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Visits:
    """Who pulled when, worked how hard and pushed when; in any order between workers.

    The visits of one worker stand in the order in which it made them. A visit that was lost in
    mid-work has ``push_s = inf``.
    """

    worker: Ints  # (n,)
    pull_s: Floats  # (n,)
    push_s: Floats  # (n,)
    local_steps: Ints  # (n,)

    def __len__(self) -> int:
        return len(self.worker)

    def __getitem__(self, rows: Bools) -> Visits:
        return Visits(
            self.worker[rows], self.pull_s[rows], self.push_s[rows], self.local_steps[rows]
        )

    @property
    def lost(self) -> Bools:
        """Which visits never push."""
        return np.isinf(self.push_s)

    def until(self, horizon_s: float) -> Visits:
        """What is known at the horizon: visits pushed by then, and those lost that began before."""
        known = (self.push_s <= horizon_s) | (self.lost & (self.pull_s < horizon_s))
        return self if known.all() else self[known]

    def check(self, workers: int) -> None:
        """Refuse visits that nobody of ``workers`` could have made."""
        columns = (self.worker, self.pull_s, self.push_s, self.local_steps)
        if len({column.shape for column in columns}) != 1 or self.worker.ndim != 1:
            raise ConfigError(
                "The columns of visits must be vectors of one length, got shapes "
                f"{[column.shape for column in columns]}."
            )
        if not len(self):
            return
        if self.worker.min() < 0 or self.worker.max() >= workers:
            raise ConfigError(
                f"Visits name workers {self.worker.min()}..{self.worker.max()}, but the population "
                f"is 0..{workers - 1}. Renumber them or raise `workers`."
            )
        if not np.isfinite(self.pull_s).all() or not (self.pull_s <= self.push_s).all():
            row = int(np.argmin(np.isfinite(self.pull_s) & (self.pull_s <= self.push_s)))
            raise ConfigError(
                f"Visit {row} pulls at {self.pull_s[row]} s and pushes at {self.push_s[row]} s; a "
                "visit pulls at a finite time and pushes no earlier (inf if it was lost)."
            )
        if self.local_steps.min() < 1:
            raise ConfigError(
                f"A visit has {self.local_steps.min()} local steps; leave visits without work out."
            )

    @staticmethod
    def join(parts: Sequence[Visits]) -> Visits:
        """One after the other."""
        return Visits(
            np.concatenate([part.worker for part in parts] or [np.zeros(0, np.int32)]),
            np.concatenate([part.pull_s for part in parts] or [np.zeros(0)]),
            np.concatenate([part.push_s for part in parts] or [np.zeros(0)]),
            np.concatenate([part.local_steps for part in parts] or [np.zeros(0, np.int32)]),
        )


class Course(Protocol):
    """Workers under way: what a process has made so far is behind it, and only they are kept."""

    @property
    def next_s(self) -> float:
        """When the next visit pulls, inf if nobody comes again."""
        ...

    def until(self, horizon_s: float) -> Visits:
        """All visits that pull before the horizon, whenever they push, less those told before."""
        ...


class Participation(Protocol):
    """A process in continuous time that knows workers and nothing of models or servers."""

    @property
    def pace_s(self) -> float:
        """Roughly the time from one push of a worker to its next: a first guess for horizons."""
        ...

    def begin(self, rng: Generator, workers: int) -> Course:
        """Everybody at time 0."""
        ...
