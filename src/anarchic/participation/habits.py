"""Workers in continuous time, put together from small parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Floats, Ints, Rows
from anarchic.participation.availability import Availability
from anarchic.participation.battery import Battery
from anarchic.participation.dropout import Dropout
from anarchic.participation.idle import Idle
from anarchic.participation.visits import Course, Visits
from anarchic.participation.work import Work


@final
@dataclass(frozen=True)
class Habits:
    """Every worker idles, pulls, works, pushes, and begins again.

    ``idle`` says when it turns up, ``work`` how hard and how long it works. Optionally it fails
    (``dropout``), pays for its local steps (``battery``) or visits only inside the windows of a
    trace (``availability``): idle time then counts only while it is available, and a visit that
    does not end within its window is lost. All begin idle at time 0.
    """

    idle: Idle
    work: Work
    dropout: Dropout = field(default_factory=Dropout)
    battery: Battery | None = None
    availability: Availability | None = None

    def __post_init__(self) -> None:
        if self.battery is not None and self.idle.mean_s == 0:
            raise ConfigError(
                "A worker with an empty battery waits by idling, but its mean idle time is 0; give "
                "the habits an idle time above 0."
            )

    @property
    def pace_s(self) -> float:
        pace = self.work.pace_s(self.idle.mean_s) / (1 - self.dropout.lost)
        return pace if self.availability is None else pace / self.availability.share

    def visits(self, rng: Generator, workers: int, horizon_s: float) -> Visits:
        """All pushes up to the horizon."""
        if not 0 <= horizon_s < np.inf:
            raise ConfigError(f"Visits need a finite horizon_s >= 0, got {horizon_s}.")
        return self.begin(rng, workers).until(horizon_s).until(horizon_s)

    def begin(self, rng: Generator, workers: int) -> Course:
        """Everybody at time 0."""
        if workers < 1:
            raise ConfigError(f"Visits need workers >= 1, got {workers}.")
        if self.availability is not None:
            self.availability.check(workers)
        return _Crew(self, rng, workers)


class _Crew:
    """All workers under way: a few numbers each, however many visits they have made.

    Time goes on in waves, one visit of everyone who pulls before the horizon and has not yet
    passed it.
    """

    def __init__(self, habits: Habits, rng: Generator, workers: int) -> None:
        self._habits = habits
        self._rng = rng
        self._factor = habits.work.speeds.draw(rng, workers)
        self._traits = habits.idle.traits(rng, workers)
        self._pull_s = np.empty(workers)  # of the next visit; inf for those who come no more
        self._until_s = np.empty(0 if habits.availability is None else workers)  # end of its window
        if habits.battery is not None:
            self._charge = np.full(workers, float(habits.battery.capacity))  # at _paid_s
            self._paid_s = np.zeros(workers)
        self._idle(np.arange(workers), np.zeros(workers))

    @property
    def next_s(self) -> float:
        return float(self._pull_s.min())

    def until(self, horizon_s: float) -> Visits:
        waves = []
        rows = np.flatnonzero(self._pull_s < horizon_s)
        while len(rows):
            wave, rows = self._wave(rows)
            waves.append(wave)
            rows = rows[self._pull_s[rows] < horizon_s]
        return Visits.join(waves)

    def _wave(self, rows: Rows) -> tuple[Visits, Rows]:
        """One visit of each of these workers, and those of them who stay."""
        habits, rng = self._habits, self._rng
        pull, factor = self._pull_s[rows], self._factor[rows]
        steps = habits.work.draw_steps(rng, factor)
        if habits.battery is not None:
            steps = self._pay(habits.battery, rows, steps)
        seconds = habits.work.draw_seconds(rng, steps, factor)
        lost = habits.dropout.loses(rng, seconds)
        end = pull + seconds
        if habits.availability is not None:
            until = self._until_s[rows]
            lost |= end > until
            end = np.minimum(end, until)
        wave = Visits(rows.astype(np.int32), pull, np.where(lost, np.inf, end), steps)
        if habits.battery is not None:
            wave = wave[steps > 0]
        if habits.dropout.leave:
            stays = (steps == 0) | habits.dropout.stays(rng, len(steps))
            self._pull_s[rows[~stays]] = np.inf
            rows, end = rows[stays], end[stays]
        self._idle(rows, end)
        return wave, rows

    def _idle(self, rows: Rows, free_s: Floats) -> None:
        """These workers are free since ``free_s``: when they pull next, and must have pushed."""
        pull = self._habits.idle.pulls(self._rng, self._traits[rows], free_s)
        if self._habits.availability is not None:
            worker = rows.astype(np.int32)
            pull, self._until_s[rows] = self._habits.availability.after(
                worker, free_s, pull - free_s
            )
        self._pull_s[rows] = pull

    def _pay(self, battery: Battery, rows: Rows, steps: Ints) -> Ints:
        """Charge the batteries up to now, pay, and return the local steps paid for."""
        now = self._pull_s[rows]
        charge = battery.charged(self._charge[rows], now - self._paid_s[rows])
        steps = battery.affordable(charge, steps)
        self._charge[rows] = charge - steps * battery.step_cost
        self._paid_s[rows] = now
        return steps
