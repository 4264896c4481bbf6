"""How many local steps a worker takes on a visit, simulated or live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Ints


class StepPolicy(Protocol):
    """Draws K, the local steps of visits."""

    @property
    def mean(self) -> float:
        """Expected local steps of a visit."""
        ...

    def draw(self, rng: Generator, shape: int | tuple[int, ...]) -> Ints:
        """Local steps, at least 1, in an array of this shape."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ConstantSteps:
    """Every visit takes ``c`` local steps, the paper's constant steps."""

    c: int

    def __post_init__(self) -> None:
        if self.c < 1:
            raise ConfigError(f"ConstantSteps needs c >= 1 local steps, got c={self.c}.")

    @property
    def mean(self) -> float:
        return float(self.c)

    def draw(self, rng: Generator, shape: int | tuple[int, ...]) -> Ints:
        return np.full(shape, self.c, np.int32)

    def more(self, done: int, elapsed_s: float, chance: float) -> bool:
        """For a live worker: whether to take another step after ``done``."""
        return done < self.c


@final
@dataclass(frozen=True, slots=True)
class UniformSteps:
    """Every visit takes a number of local steps K uniform on ``low``..``high``, both included.

    The paper's dynamic steps are ``UniformSteps(1, 2 * c)``, with mean c + 1/2.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ConfigError(
                f"UniformSteps needs 1 <= low <= high, got low={self.low}, high={self.high}."
            )

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, rng: Generator, shape: int | tuple[int, ...]) -> Ints:
        return rng.integers(self.low, self.high, shape, dtype=np.int32, endpoint=True)

    def more(self, done: int, elapsed_s: float, chance: float) -> bool:
        """For a live worker: ``chance``, uniform on [0, 1), is drawn once per visit."""
        return done < self.low + int(chance * (self.high - self.low + 1))
