"""How long a worker idles between visits, simulated or live."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.random import Generator

from anarchic.core.types import Floats
from anarchic.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Moment:
    """The time now and of the last visit; before the first visit that is the worker's start."""

    now_s: float  # wall clock
    began_s: float  # the last visit
    ended_s: float
    visits: int  # so far
    chance: float  # uniform on [0, 1), drawn once per visit


class Idle(Protocol):
    """When a worker visits again.

    One for which the time of day matters also has ``moved_s(trait, free_s, pull_s, now_s)``: when
    a worker pulls that is free at ``now_s`` instead of ``free_s``, by the same draw. Without it the
    idle time is the same.
    """

    @property
    def mean_s(self) -> float:
        """Roughly the mean idle time, 0 only if nobody ever idles."""

    def traits(self, rng: Generator, workers: int) -> Floats:
        """What sets one worker apart from another for good: one number each."""

    def pulls(self, rng: Generator, traits: Floats, now_s: Floats) -> Floats:
        """When workers with these traits, free since ``now_s``, pull next; never earlier."""


@final
@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential idle times of mean ``mean_idle_s``; 0 for workers that never idle."""

    mean_idle_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.mean_idle_s < math.inf:
            raise ConfigError(f"Exponential needs 0 <= mean_idle_s < inf, got {self.mean_idle_s}.")

    @property
    def mean_s(self) -> float:
        return self.mean_idle_s

    def traits(self, rng: Generator, workers: int) -> Floats:
        return np.zeros(workers)

    def pulls(self, rng: Generator, traits: Floats, now_s: Floats) -> Floats:
        if self.mean_idle_s == 0:
            return now_s
        return rng.standard_exponential(len(now_s)) * self.mean_idle_s + now_s

    def delay_s(self, moment: Moment) -> float:
        """For a live worker: how long to wait until its next visit."""
        idle_s = -self.mean_idle_s * math.log1p(-moment.chance)
        return max(0.0, moment.ended_s + idle_s - moment.now_s)


@final
@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal idle times: most are near the median, some are very long.

    ``sigma`` is the standard deviation of the logarithm.
    """

    median_idle_s: float
    sigma: float

    def __post_init__(self) -> None:
        if not (0 < self.median_idle_s < math.inf and self.sigma >= 0):
            raise ConfigError(
                "LogNormal needs 0 < median_idle_s < inf and sigma >= 0, got "
                f"{self.median_idle_s} and {self.sigma}."
            )

    @property
    def mean_s(self) -> float:
        return self.median_idle_s * math.exp(self.sigma**2 / 2)

    def traits(self, rng: Generator, workers: int) -> Floats:
        return np.zeros(workers)

    def pulls(self, rng: Generator, traits: Floats, now_s: Floats) -> Floats:
        return now_s + rng.lognormal(math.log(self.median_idle_s), self.sigma, len(now_s))


@final
@dataclass(frozen=True, slots=True)
class Unequal:
    """Exponential idle times whose mean differs from worker to worker, for good.

    The means are log-normal around ``mean_idle_s``; ``sigma`` is the standard deviation of their
    logarithm. At 1.2 one worker in six idles less than a seventh of the mean, one in twelve more
    than 2.5 times it.
    """

    mean_idle_s: float
    sigma: float = 1.2

    def __post_init__(self) -> None:
        if not (0 < self.mean_idle_s < math.inf and 0 <= self.sigma < math.inf):
            raise ConfigError(
                "Unequal needs 0 < mean_idle_s < inf and 0 <= sigma < inf, got "
                f"{self.mean_idle_s} and {self.sigma}."
            )

    @property
    def mean_s(self) -> float:
        return self.mean_idle_s

    def traits(self, rng: Generator, workers: int) -> Floats:
        """Each worker's own mean idle time, in seconds."""
        return self.mean_idle_s * rng.lognormal(-(self.sigma**2) / 2, self.sigma, workers)

    def pulls(self, rng: Generator, traits: Floats, now_s: Floats) -> Floats:
        return now_s + rng.standard_exponential(len(now_s)) * traits


_DAY_S = 86_400.0


@final
@dataclass(frozen=True, slots=True)
class Diurnal:
    """Workers visit mostly in certain hours of a day of 24 h.

    While awake, for ``awake_h`` hours, a worker idles exponential times of mean ``mean_idle_s``;
    for the rest of the day it visits at ``asleep`` times that rate. The hour at which a worker
    wakes is drawn once per worker, uniformly between the two ``wakes_h``: (0, 24) is workers in
    all time zones, (22, 24) is phones of one country that charge at night.
    """

    mean_idle_s: float
    awake_h: float = 8.0
    asleep: float = 0.0
    wakes_h: tuple[float, float] = (0.0, 24.0)

    def __post_init__(self) -> None:
        if not 0 < self.mean_idle_s < math.inf:
            raise ConfigError(f"Diurnal needs 0 < mean_idle_s < inf, got {self.mean_idle_s}.")
        if not (0 < self.awake_h <= 24 and 0 <= self.asleep <= 1):
            raise ConfigError(
                "Diurnal needs 0 < awake_h <= 24 and 0 <= asleep <= 1 (a share of the rate when "
                f"awake), got {self.awake_h} and {self.asleep}."
            )
        if not 0 <= self.wakes_h[0] <= self.wakes_h[1] <= 24:
            raise ConfigError(
                f"Diurnal needs 0 <= earliest <= latest <= 24 in wakes_h, got {self.wakes_h}."
            )

    @property
    def mean_s(self) -> float:
        return self.mean_idle_s * _DAY_S / self._awake_s_per_day

    def traits(self, rng: Generator, workers: int) -> Floats:
        """Second of the day at which each worker wakes up."""
        return rng.uniform(self.wakes_h[0], self.wakes_h[1], workers) * 3600.0

    def pulls(self, rng: Generator, traits: Floats, now_s: Floats) -> Floats:
        """Exponential in awake time, a clock that runs at rate 1 or ``asleep``."""
        awake = self._awake_time(now_s - traits)
        awake += rng.standard_exponential(len(now_s)) * self.mean_idle_s
        # Rounding may put the inverse slightly before now.
        return np.maximum(self._wall_time(awake) + traits, now_s)

    def moved_s(self, trait: float, free_s: float, pull_s: float, now_s: float) -> float:
        """The pull of a worker that is free at ``now_s`` instead, after as much awake time."""
        since, until, now = np.array([free_s, pull_s, now_s]) - trait
        idle = self._awake_time(until) - self._awake_time(since)
        return float(self._wall_time(self._awake_time(now) + idle)) + trait

    @property
    def _awake_s(self) -> float:
        return self.awake_h * 3600.0

    @property
    def _awake_s_per_day(self) -> float:
        return self._awake_s + self.asleep * (_DAY_S - self._awake_s)

    def _awake_time(self, wall_s: Floats) -> Floats:
        day = np.floor(wall_s / _DAY_S)
        second = wall_s - day * _DAY_S
        today = np.where(
            second < self._awake_s, second, self._awake_s + self.asleep * (second - self._awake_s)
        )
        return day * self._awake_s_per_day + today

    def _wall_time(self, awake_s: Floats) -> Floats:
        day = np.floor(awake_s / self._awake_s_per_day)
        today = awake_s - day * self._awake_s_per_day
        slow = 1 / self.asleep if self.asleep else 0.0  # asleep = 0: only rounding passes _awake_s
        second = np.where(
            today < self._awake_s, today, self._awake_s + slow * (today - self._awake_s)
        )
        return day * _DAY_S + second


# Idle times by name, from their mean; that of diurnal workers while they are awake.
IDLE_TIMES: Mapping[str, Callable[[float], Idle]] = {
    "exponential": Exponential,
    "lognormal": lambda mean_s: LogNormal(mean_s / math.exp(1 / 2), sigma=1.0),
    "diurnal": Diurnal,
    "unequal": Unequal,
}
