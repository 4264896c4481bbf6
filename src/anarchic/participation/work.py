"""How many local steps a visit takes, and how long they last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anarchic.core.types import Floats, Ints
from anarchic.errors import ConfigError

Shape = int | tuple[int, ...]


class StepPolicy(Protocol):
    """Draws K, the local steps of visits.

    One for which it matters whose visits they are also has ``of(rng, worker)``; see ``draw_steps``.
    """

    @property
    def mean(self) -> float:
        """Expected local steps of a visit."""

    def draw(self, rng: Generator, shape: Shape) -> Ints:
        """Local steps, at least 1, in an array of this shape."""


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

    def draw(self, rng: Generator, shape: Shape) -> Ints:
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

    def draw(self, rng: Generator, shape: Shape) -> Ints:
        return rng.integers(self.low, self.high, shape, dtype=np.int32, endpoint=True)

    def more(self, done: int, elapsed_s: float, chance: float) -> bool:
        """For a live worker: ``chance``, uniform on [0, 1), is drawn once per visit."""
        return done < self.low + int(chance * (self.high - self.low + 1))


@final
@dataclass(frozen=True)
class Epochs:
    """Every visit goes ``epochs`` times through its worker's samples, in batches.

    That is epochs * ceil(n_i / batch) local steps, n_i being ``samples`` of worker i. Which samples
    a batch holds is up to the local work: with ``LocalWork(shuffle=True)`` an epoch is one pass
    through all samples, otherwise as many independent draws.
    """

    epochs: int
    batch: int
    samples: Sequence[int] | NDArray[np.integer[Any]]  # (workers,), n_i

    def __post_init__(self) -> None:
        given = np.asarray(self.samples)
        if self.epochs < 1 or self.batch < 1 or given.ndim != 1 or not len(given):
            raise ConfigError(
                f"Epochs needs epochs >= 1, batch >= 1 and the samples of each worker, got "
                f"epochs={self.epochs}, batch={self.batch} and {len(np.atleast_1d(given))} workers."
            )
        if given.min() < 1:
            raise ConfigError(f"Worker {given.argmin()} has no sample to go through.")

    @cached_property
    def steps(self) -> Ints:
        """(workers,) local steps of a visit."""
        return (self.epochs * -(-np.asarray(self.samples) // self.batch)).astype(np.int32)

    @property
    def mean(self) -> float:
        return float(self.steps.mean())

    def draw(self, rng: Generator, shape: Shape) -> Ints:
        raise ConfigError(
            "Epochs must know whose visits they are: this participation process does not say it. "
            "Let it draw by draw_steps(policy, rng, worker), or use ConstantSteps."
        )

    def of(self, rng: Generator, worker: Ints) -> Ints:
        if worker.max(initial=0) >= len(self.steps):
            raise ConfigError(
                f"Epochs knows the samples of {len(self.steps)} workers, but there is a worker "
                f"{worker.max()}: give the samples of all."
            )
        return self.steps[worker]


def draw_steps(policy: StepPolicy, rng: Generator, worker: NDArray[np.integer[Any]]) -> Ints:
    """The local steps of one visit of each of these workers, in an array of the same shape."""
    of: Callable[..., Ints] | None = getattr(policy, "of", None)
    return policy.draw(rng, worker.shape) if of is None else of(rng, worker)


class TimeDistribution(Protocol):
    """Draws random factors of mean 1 for the work time of visits, or None for exactly 1."""

    def draw(self, rng: Generator, shape: Shape) -> Floats | None: ...


@final
@dataclass(frozen=True, slots=True)
class ConstantTime:
    """Work time is exactly that of its local steps."""

    def draw(self, rng: Generator, shape: Shape) -> Floats | None:
        return None


@final
@dataclass(frozen=True, slots=True)
class ExponentialTime:
    """Work time is exponential: the usual model of stragglers."""

    def draw(self, rng: Generator, shape: Shape) -> Floats | None:
        return rng.standard_exponential(shape)


@final
@dataclass(frozen=True, slots=True)
class LogNormalTime:
    """Work time is log-normal; ``sigma`` is the standard deviation of its logarithm."""

    sigma: float

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ConfigError(
                f"LogNormalTime needs sigma > 0, got {self.sigma}; use ConstantTime() for 0."
            )

    def draw(self, rng: Generator, shape: Shape) -> Floats | None:
        return rng.lognormal(-(self.sigma**2) / 2, self.sigma, shape)  # mean 1


TIME_DISTRIBUTIONS: Mapping[str, Callable[[], TimeDistribution]] = {
    "constant": ConstantTime,
    "exponential": ExponentialTime,
    "lognormal": lambda: LogNormalTime(1.0),
}


@final
@dataclass(frozen=True)
class SpeedClasses:
    """Fast and slow workers: ``{name: (share, factor)}``.

    Each worker is put into one class at the start, drawn by the shares, and stays in it. Its work
    takes ``factor`` times as long as that of a worker with factor 1.
    """

    classes: Mapping[str, tuple[float, float]]

    def __post_init__(self) -> None:
        if not self.classes:
            raise ConfigError("SpeedClasses needs at least one class, got none.")
        for name, (share, factor) in self.classes.items():
            if not (share >= 0 and 0 < factor < np.inf):
                raise ConfigError(
                    f"Speed class {name!r} has share {share} and factor {factor}; a share is >= 0 "
                    "and a factor is above 0 and finite."
                )
        total = sum(share for share, _ in self.classes.values())
        if abs(total - 1) > 1e-6:
            raise ConfigError(
                f"Shares of speed classes must sum to 1, got {total:.9g}; divide them by their sum."
            )

    def draw(self, rng: Generator, workers: int) -> Floats:
        """The factor of each worker."""
        shares, factors = zip(*self.classes.values(), strict=True)
        if len(factors) == 1:
            return np.full(workers, float(factors[0]))
        edges = np.cumsum(shares)[:-1]  # the last class takes what rounding leaves
        of = np.searchsorted(edges, rng.random(workers), side="right")
        return np.array(factors, np.float64)[of]


@final
@dataclass(frozen=True, eq=False)
class MeasuredSpeeds:
    """The work of worker i takes ``factor[i]`` times as long; see ``read_speeds``."""

    factor: Floats  # (workers,)

    def __post_init__(self) -> None:
        if self.factor.ndim != 1 or not len(self.factor) or not (self.factor > 0).all():
            raise ConfigError("MeasuredSpeeds needs a factor above 0 for each worker.")

    @property
    def classes(self) -> Mapping[str, tuple[float, float]]:
        """Ten classes of the same size that are like these workers; for guesses of their pace."""
        middles = np.quantile(self.factor, (np.arange(10) + 0.5) / 10).tolist()
        return {str(number): (0.1, factor) for number, factor in enumerate(middles)}

    def draw(self, rng: Generator, workers: int) -> Floats:
        """The factor of each worker."""
        if workers > len(self.factor):
            raise ConfigError(
                f"There are speeds for {len(self.factor)} workers, but {workers} workers: give "
                "the speeds of all."
            )
        return self.factor[:workers]


@final
@dataclass(frozen=True)
class Work:
    """Work time = local steps * ``step_s`` * the worker's speed * a random factor of mean 1."""

    steps: StepPolicy
    step_s: float
    speeds: SpeedClasses | MeasuredSpeeds = field(
        default_factory=lambda: SpeedClasses({"all": (1.0, 1.0)})
    )
    time_distribution: TimeDistribution = field(default_factory=ConstantTime)

    def __post_init__(self) -> None:
        if not 0 < self.step_s < np.inf:
            raise ConfigError(
                f"Work needs 0 < step_s < inf (seconds per local step), got {self.step_s}."
            )

    def draw_seconds(self, rng: Generator, steps: Ints, factor: Floats) -> Floats:
        """Work time of these visits."""
        seconds = factor * steps
        seconds *= self.step_s
        factors = self.time_distribution.draw(rng, steps.shape)
        if factors is not None:
            seconds *= factors
        return seconds

    def pace_s(self, idle_s: float) -> float:
        """Mean time between two pushes of a worker, over all classes, for a mean idle time."""
        mean_s = self.steps.mean * self.step_s
        rate = sum(
            share / (idle_s + mean_s * factor) for share, factor in self.speeds.classes.values()
        )
        return 1 / rate
