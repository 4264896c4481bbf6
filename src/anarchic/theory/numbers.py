"""The numbers that the theorems use, with the paper's symbols.

Reference: Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875.
This holds for the whole package. Where its text and its proofs differ, the proofs are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import inf
from typing import Self

from anarchic.errors import ConfigError

# Within these no product in the theorems overflows a float.
LARGEST, LEAST_SMOOTHNESS, LEAST_RATE = 1e20, 1e-20, 1e-100


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The problem that is optimised, as Assumptions 1 to 3 describe it.

    Symbols: ``smoothness`` is L of every worker's function; ``sigma_local`` is sigma_L, the
    deviation of a stochastic gradient from its worker's gradient; ``sigma_global`` is sigma_G, that
    of a worker's gradient from the mean of all; ``gap`` is f(x_0) - f_*, f being the mean of the
    workers' functions and x_0 the first model that the theorem is about.
    """

    smoothness: float
    sigma_local: float
    sigma_global: float
    gap: float

    def __post_init__(self) -> None:
        _within(self, 0, "sigma_local", "sigma_global", "gap")
        _within(self, LEAST_SMOOTHNESS, "smoothness")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Learning rates: ``server_lr`` is eta, ``local_lr`` is eta_L."""

    server_lr: float
    local_lr: float

    def __post_init__(self) -> None:
        _within(self, LEAST_RATE, "server_lr", "local_lr")

    @property
    def step(self) -> float:
        """eta * eta_L, the factor of the mean gradient in a server step."""
        return self.server_lr * self.local_lr


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """What Theorems 2 and 3 need to know of the updates that arrive.

    Symbols: ``workers`` is M, ``rounds`` is T, ``staleness`` is tau, the largest of all updates;
    ``steps_max`` is the largest K_{t,i}; ``inverse_steps``, ``mean_steps`` and ``square_steps`` are
    the means over all rounds of 1/K_t, K-bar_t and K-hat_t^2, each the mean over the m updates of a
    round; ``worst_square_steps`` is the largest K-hat_t^2 of a round.
    Departs from the paper in: the proof of Theorem 3 takes K-bar_t and K-hat_t^2 over all M
    workers, also those that sent nothing; under uniform arrivals the expectation is the same.
    """

    workers: int
    m: int
    rounds: int
    staleness: int
    steps_max: int
    inverse_steps: float
    mean_steps: float
    square_steps: float
    worst_square_steps: float

    def __post_init__(self) -> None:
        _within(self, 0, "staleness", "inverse_steps")
        _within(self, 1, "workers", "m", "rounds", "steps_max", "mean_steps")
        _within(self, 1, "square_steps", "worst_square_steps")

    @classmethod
    def steady(
        cls, *, workers: int, m: int, rounds: int, staleness: int = 0, local_steps: int = 1
    ) -> Self:
        """Every visit takes the same number of local steps, K."""
        K = at_least_one_step(local_steps)
        return cls(
            workers=workers,
            m=m,
            rounds=rounds,
            staleness=staleness,
            steps_max=K,
            inverse_steps=1 / K,
            mean_steps=K,
            square_steps=K**2,
            worst_square_steps=K**2,
        )


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What Theorem 4 needs to know of the rows that AFA-CS steps along.

    Symbols: ``row_age`` is tau of Theorem 4: the age of a worker's row in memory when it is used,
    counted from the version that the worker pulled, and not the staleness of an arriving update (a
    row ages until its worker reports again); ``fresh`` is m', the number of rows without delay, the
    least of all rounds, since the proof needs M - m' as a bound. ``inverse_steps`` is the mean over
    the rounds of 1/K_t, itself a mean over the M rows; ``sum_steps`` and ``sum_square_steps`` are
    those of K-bar_t and K-hat_t^2, which the proof defines as *sums* over the M rows, where the
    text of the theorem inherits the means of Theorem 2; ``worst_sum_square_steps`` is the largest
    K-hat_t^2 of a round. ``first`` is the first round in which every worker has a row; the theorem
    does not cover earlier rounds, in which a silent worker counts as zero. ``row_age`` is infinite
    where a worker never reported. ``reuse`` is in no formula of the paper, which treats the noise
    of a row as new in every step: it is the mean over rounds and rows of a/K, where a is the number
    of earlier steps along the row (see ``anarchic.theory.bounds.reused_noise``).
    """

    workers: int
    rounds: int
    row_age: float
    fresh: int
    steps_max: int
    inverse_steps: float
    sum_steps: float
    sum_square_steps: float
    worst_sum_square_steps: float
    reuse: float
    first: int = 0

    def __post_init__(self) -> None:
        _within(self, 0, "fresh", "inverse_steps", "first")
        _within(self, 1, "workers", "rounds", "steps_max")
        _within(self, 1, "sum_steps", "sum_square_steps", "worst_sum_square_steps")
        if self.row_age != inf:
            _within(self, 0, "row_age", "reuse")
        if self.fresh > self.workers:
            raise ConfigError(
                f"Memory has {self.workers} rows, got fresh={self.fresh} rows without delay."
            )

    @property
    def delay(self) -> float:
        """(M - m') * tau / M, how delay enters Theorem 4; 0 where no row is late."""
        return _delay(self.workers, self.fresh, self.row_age)

    @classmethod
    def steady(
        cls,
        *,
        workers: int,
        rounds: int,
        row_age: float = 0,
        fresh: int = 0,
        local_steps: int = 1,
        used: float | None = None,
    ) -> Self:
        """Every visit takes the same number of local steps, K.

        ``used`` is the mean number of earlier steps along a row; the default is ``delay``, the
        most that ``row_age`` and ``fresh`` allow.
        """
        K = at_least_one_step(local_steps)
        most = _delay(workers, fresh, row_age)
        return cls(
            workers=workers,
            rounds=rounds,
            row_age=row_age,
            fresh=fresh,
            steps_max=K,
            inverse_steps=1 / K,
            sum_steps=workers * K,
            sum_square_steps=workers * K**2,
            worst_sum_square_steps=workers * K**2,
            reuse=(most if used is None else used) / K,
        )


PROBLEM = tuple(field.name for field in fields(Problem))
RATES = tuple(field.name for field in fields(Rates))


@dataclass(frozen=True, kw_only=True)
class KnownNumbers:
    """Numbers that are known, or tried out; None where a default, an estimate or a count holds.

    Symbols: as in ``Problem`` and ``Rates``; ``rounds`` is T, ``workers`` M, ``local_steps`` K of
    every visit, ``staleness`` tau of Theorems 2 and 3, ``row_age`` tau and ``fresh`` m' of
    Theorem 4.
    """

    smoothness: float | None = None
    sigma_local: float | None = None
    sigma_global: float | None = None
    gap: float | None = None
    server_lr: float | None = None
    local_lr: float | None = None
    rounds: int | None = None
    workers: int | None = None
    m: int | None = None
    local_steps: int | None = None
    staleness: int | None = None
    row_age: int | None = None
    fresh: int | None = None

    def given(self, names: Iterable[str]) -> dict[str, float]:
        """Those of ``names`` that are known."""
        return {name: n for name in names if (n := getattr(self, name)) is not None}

    @property
    def participation(self) -> dict[str, float]:
        """The known numbers of participation, which a recorded run has itself."""
        return self.given(f.name for f in fields(self) if f.name not in PROBLEM + RATES)


def _delay(workers: int, fresh: int, row_age: float) -> float:
    return (workers - fresh) / workers * row_age if fresh < workers else 0.0


def at_least_one_step(local_steps: int) -> int:
    if not local_steps >= 1:
        raise ConfigError(f"A visit takes at least one local step, got local_steps={local_steps}.")
    return local_steps


def _within(record: Problem | Rates | Arrivals | Memory, least: float, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        if not least <= value <= LARGEST:
            raise ConfigError(
                f"{type(record).__name__} needs a {name} from {least:g} to {LARGEST:g}, got "
                f"{name}={value}."
            )
