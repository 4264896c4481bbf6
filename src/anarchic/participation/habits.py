"""Workers in continuous time, put together from small parts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import final

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Bools, Floats, Ints
from anarchic.participation.availability import Availability
from anarchic.participation.battery import Battery
from anarchic.participation.dropout import Dropout
from anarchic.participation.idle import Idle
from anarchic.participation.visits import Visits
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
        """All pushes up to the horizon, in waves: the k-th visits of all who still come."""
        if workers < 1 or not 0 <= horizon_s < np.inf:
            raise ConfigError(
                f"Visits need workers >= 1 and a finite horizon_s >= 0, got {workers} and "
                f"{horizon_s}."
            )
        if self.availability is not None:
            self.availability.check(workers)
        crew = self._gather(rng, workers)
        waves = []
        while len(crew.worker):
            crew, wave = self._wave(rng, crew, horizon_s)
            waves.append(wave)
        return Visits.join(waves)

    def _gather(self, rng: Generator, workers: int) -> _Crew:
        charge = np.zeros(0) if self.battery is None else np.full(workers, self.battery.capacity)
        return _Crew(
            worker=np.arange(workers, dtype=np.int32),
            free_s=np.zeros(workers),
            factor=self.work.speeds.draw(rng, workers),
            traits=self.idle.traits(rng, workers),
            charge=charge,
            paid_s=np.zeros(len(charge)),
        )

    def _wave(self, rng: Generator, crew: _Crew, horizon_s: float) -> tuple[_Crew, Visits]:
        """One visit of everyone who pulls before the horizon, and the crew after it."""
        pull, until = self._pulls(rng, crew)
        come = pull < horizon_s
        if not come.all():
            crew, pull, until = crew[come], pull[come], until[come]
        steps = self.work.draw_steps(rng, crew.factor)
        if self.battery is not None:
            steps = crew.pay(self.battery, pull, steps)
        seconds = self.work.draw_seconds(rng, steps, crew.factor)
        lost = self.dropout.loses(rng, seconds)
        end = pull + seconds
        if self.availability is not None:
            lost |= end > until
            end = np.minimum(end, until)
        wave = Visits(crew.worker, pull, np.where(lost, np.inf, end), steps)
        if self.battery is not None:
            wave = wave[steps > 0]
        crew = crew.free_at(end)
        if self.dropout.leave:
            crew = crew[(steps == 0) | self.dropout.stays(rng, len(steps))]
        return crew, wave.until(horizon_s)

    def _pulls(self, rng: Generator, crew: _Crew) -> tuple[Floats, Floats]:
        """When each worker pulls next, and when it must have pushed."""
        pull = self.idle.pulls(rng, crew.traits, crew.free_s)
        if self.availability is None:
            return pull, np.full(len(pull), np.inf)
        return self.availability.after(crew.worker, crew.free_s, pull - crew.free_s)


@dataclass
class _Crew:
    """The workers that still come, as arrays of one length (battery columns may be empty)."""

    worker: Ints
    free_s: Floats  # since when it idles
    factor: Floats
    traits: Floats
    charge: Floats  # at paid_s
    paid_s: Floats

    def __getitem__(self, rows: Bools) -> _Crew:
        columns = [getattr(self, column.name) for column in fields(self)]
        return _Crew(*(column[rows] if len(column) else column for column in columns))

    def free_at(self, end: Floats) -> _Crew:
        return _Crew(self.worker, end, self.factor, self.traits, self.charge, self.paid_s)

    def pay(self, battery: Battery, pull: Floats, steps: Ints) -> Ints:
        """Charge the batteries up to now, pay, and return the local steps paid for."""
        self.charge = battery.charged(self.charge, pull - self.paid_s)
        self.paid_s = pull
        steps = battery.affordable(self.charge, steps)
        self.charge -= steps * battery.step_cost
        return steps
