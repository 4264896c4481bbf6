"""How many local steps a worker takes on a visit."""

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
        _check(self)

    @property
    def mean(self) -> float:
        return float(self.c)

    def draw(self, rng: Generator, shape: int | tuple[int, ...]) -> Ints:
        return np.full(shape, self.c, np.int32)


@final
@dataclass(frozen=True, slots=True)
class UniformSteps:
    """Every visit takes K uniform on 1..2c, the paper's dynamic steps; the mean is c + 1/2."""

    c: int

    def __post_init__(self) -> None:
        _check(self)

    @property
    def mean(self) -> float:
        return self.c + 0.5

    def draw(self, rng: Generator, shape: int | tuple[int, ...]) -> Ints:
        return rng.integers(1, 2 * self.c, shape, dtype=np.int32, endpoint=True)


def _check(policy: ConstantSteps | UniformSteps) -> None:
    if policy.c < 1:
        raise ConfigError(f"{type(policy).__name__} needs c >= 1 local steps, got c={policy.c}.")
