"""Theorems 2, 3 and 4 applied to given numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anarchic.errors import ConfigError
from anarchic.theory import bounds, conditions
from anarchic.theory import rates as corollaries
from anarchic.theory.bounds import Bound
from anarchic.theory.conditions import Condition, RateLimits
from anarchic.theory.numbers import PROBLEM, RATES, Arrivals, KnownNumbers, Memory, Problem, Rates

NO_DRAW = (
    "Theorem 3 is left out: a round draws m different workers, and m = {m} is more than the "
    "{workers} that there are."
)


@dataclass(frozen=True)
class Verdict:
    """One theorem applied to given numbers.

    ``limits`` are the largest learning rates that satisfy the conditions. ``corollary`` are the
    rates of its corollary for the same rounds and local steps. They satisfy the conditions from
    ``rounds_needed`` rounds on. ``rate`` are the terms of the corollary, without constants; the
    speed-up is the largest of those that vanish from ``rounds_until_speed_up`` rounds on.
    """

    theorem: int
    about: str
    rates: Rates
    conditions: tuple[Condition, ...]
    bound: Bound
    limits: RateLimits
    corollary: Rates
    rate: Mapping[str, float]
    rounds_needed: float
    rounds_until_speed_up: float

    @property
    def holds(self) -> bool:
        """Whether all conditions hold."""
        return all(condition.holds for condition in self.conditions)


def judge_general(problem: Problem, rates: Rates, arrivals: Arrivals) -> Verdict:
    """Theorem 2."""
    L, of = problem.smoothness, _of(arrivals)
    return _verdict(
        "AFA-CD, arrivals of any kind",
        rates,
        conditions.general_conditions(L, rates, arrivals),
        bounds.general_bound(problem, rates, arrivals),
        conditions.general_limits(L, arrivals),
        corollaries.general_rate(**of, sigma_global=problem.sigma_global),
        (of["rounds"], of["m"], of["local_steps"], of["staleness"]),
    )


def judge_uniform(problem: Problem, rates: Rates, arrivals: Arrivals) -> Verdict:
    """Theorem 3, for m <= M: a round draws m different workers."""
    if arrivals.m > arrivals.workers:
        raise ConfigError(NO_DRAW.format(m=arrivals.m, workers=arrivals.workers))
    L, of = problem.smoothness, _of(arrivals)
    return _verdict(
        "AFA-CD, workers equally likely to arrive",
        rates,
        conditions.uniform_conditions(L, rates, arrivals),
        bounds.uniform_bound(problem, rates, arrivals),
        conditions.uniform_limits(L, arrivals),
        corollaries.uniform_rate(**of),
        (of["rounds"], of["m"], of["local_steps"], of["staleness"]),
    )


def judge_memory(problem: Problem, rates: Rates, memory: Memory) -> Verdict:
    """Theorem 4."""
    L, T, M, tau = problem.smoothness, memory.rounds, memory.workers, memory.row_age
    K = max(1, round(memory.sum_steps / M))
    return _verdict(
        "AFA-CS, arrivals of any kind",
        rates,
        conditions.memory_conditions(L, rates, memory),
        bounds.memory_bound(problem, rates, memory),
        conditions.memory_limits(L, memory),
        corollaries.memory_rate(
            rounds=T, workers=M, local_steps=K, row_age=tau, fresh=memory.fresh
        ),
        (T, M, K, memory.delay),
    )


def _of(arrivals: Arrivals) -> dict[str, int]:
    """T, m, tau and K; the corollary has one K, here the rounded mean."""
    counts = {"rounds": arrivals.rounds, "m": arrivals.m, "staleness": arrivals.staleness}
    return counts | {"local_steps": round(arrivals.mean_steps)}


def _verdict(
    about: str,
    rates: Rates,
    met: tuple[Condition, ...],
    bound: Bound,
    limits: RateLimits,
    rate: Mapping[str, float],
    counts: tuple[int, int, int, float],
) -> Verdict:
    T, n, K, delay = counts
    corollary = corollaries.corollary_rates(rounds=T, n=n, local_steps=K)
    needed = corollaries.rounds_needed(limits, n=n, local_steps=K)
    until = corollaries.rounds_until_speed_up(n=n, local_steps=K, delay=delay)
    found = (met, bound, limits, corollary, rate, needed, until)
    return Verdict(bound.theorem, about, rates, *found)


DEFAULTS = {"rounds": 10_000, "workers": 10, "m": 5, "local_steps": 5, "staleness": 0}
"""Participation where it is not given; the numbers of the problem are 1."""


@dataclass(frozen=True)
class Calculation:
    """Theorems 2, 3 (for m <= M) and 4, and the numbers that they were applied to."""

    problem: Problem
    arrivals: Arrivals
    memory: Memory
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...] = ()


def calculate(known: KnownNumbers | None = None) -> Calculation:
    """The theorems for known numbers; ``DEFAULTS`` and 1 for the others.

    Learning rates that are not given are those of the corollaries (eta with M in place of m for
    Theorem 4). Where neither ``row_age`` nor ``fresh`` is given, the workers take turns: a row is
    replaced every ceil(M / m) rounds, by an update of the largest staleness, after half as many
    steps along it on average; m rows are without delay if the staleness is 0. Numbers that no run
    can have together are refused.

    >>> found = calculate(KnownNumbers(sigma_global=2.0, rounds=1_000_000))
    >>> [verdict.holds for verdict in found.verdicts], found.verdicts[0].bound.floor
    ([True, True, True], 24.0)
    """
    known = known or KnownNumbers()
    problem = Problem(**dict.fromkeys(PROBLEM, 1.0) | known.given(PROBLEM))
    numbers: dict[str, Any] = {**DEFAULTS, **known.given(DEFAULTS)}
    arrivals = Arrivals.steady(**numbers)
    T, M, K = numbers["rounds"], numbers["workers"], numbers["local_steps"]
    m, tau = numbers["m"], numbers["staleness"]
    rows: dict[str, Any] = known.given(("row_age", "fresh"))
    last = -(-M // m) - 1  # earlier steps along a row when it is used for the last time
    _check_possible(known, arrivals, least_age=max(tau, last))
    turns = {"row_age": tau + last, "fresh": 0 if tau else min(m, M)}
    used = None if rows else last / 2
    memory = Memory.steady(workers=M, rounds=T, local_steps=K, used=used, **turns | rows)
    by_m, by_workers = (_rates(known, rounds=T, n=n, local_steps=K) for n in (m, M))
    drawn = m <= M
    verdicts = (
        judge_general(problem, by_m, arrivals),
        *([judge_uniform(problem, by_m, arrivals)] if drawn else []),
        judge_memory(problem, by_workers, memory),
    )
    warnings = () if drawn else (NO_DRAW.format(m=m, workers=M),)
    return Calculation(problem, arrivals, memory, verdicts, warnings)


def _check_possible(known: KnownNumbers, arrivals: Arrivals, *, least_age: int) -> None:
    """Refuse delays that no run has, and a memory that these arrivals cannot leave."""
    m, staleness = arrivals.m, arrivals.staleness
    if staleness >= arrivals.rounds:
        raise ConfigError(
            f"In {arrivals.rounds} rounds an update is at most {arrivals.rounds - 1} versions "
            f"late, got staleness={staleness}."
        )
    if known.fresh is not None and known.fresh > m:
        raise ConfigError(
            f"A round replaces at most m={m} rows of the memory, so no more can be without delay, "
            f"got fresh={known.fresh}."
        )
    if known.row_age is not None and known.row_age < least_age:
        why = f"an update is {staleness} versions late when it becomes a row"
        if least_age > staleness:
            why = f"m={m} updates per round replace all rows in {least_age + 1} rounds at best"
        raise ConfigError(
            f"The oldest row is at least {least_age} rounds old, since {why}: got "
            f"row_age={known.row_age}."
        )


def _rates(known: KnownNumbers, *, rounds: int, n: int, local_steps: int) -> Rates:
    usual = corollaries.corollary_rates(rounds=rounds, n=n, local_steps=local_steps)
    return replace(usual, **known.given(RATES))
