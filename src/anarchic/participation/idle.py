"""How long a worker idles between visits, simulated or live."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Floats
from anarchic.participation.moment import Moment


class Idle(Protocol):
    """When a worker turns up again."""

    @property
    def mean_s(self) -> float:
        """Roughly the mean idle time, 0 only if nobody ever idles."""
        ...

    def traits(self, rng: Generator, workers: int) -> Floats:
        """What sets one worker apart from another for good: one number each."""
        ...

    def pulls(self, rng: Generator, traits: Floats, now_s: Floats) -> Floats:
        """When workers with these traits, free since ``now_s``, pull next; never earlier."""
        ...


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
        idle = rng.standard_exponential(len(now_s))
        idle *= self.mean_idle_s
        idle += now_s
        return idle

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
