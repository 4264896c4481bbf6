"""Theorems 2, 3 and 4 applied to given numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anarchic.theory.bounds import Bound, general_bound, memory_bound, uniform_bound
from anarchic.theory.conditions import (
    Condition,
    RateLimits,
    general_conditions,
    general_limits,
    memory_conditions,
    memory_limits,
    uniform_conditions,
    uniform_limits,
)
from anarchic.theory.numbers import Arrivals, Memory, Problem, Rates
from anarchic.theory.rates import (
    corollary_rates,
    general_rate,
    memory_rate,
    rounds_needed,
    rounds_until_speed_up,
    uniform_rate,
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
    limits = general_limits(problem.smoothness, arrivals)
    T, m, tau, K = _of(arrivals)
    return Verdict(
        2,
        "AFA-CD, arrivals of any kind",
        rates,
        general_conditions(problem.smoothness, rates, arrivals),
        general_bound(problem, rates, arrivals),
        limits,
        corollary_rates(rounds=T, n=m, local_steps=K),
        general_rate(
            rounds=T, m=m, local_steps=K, staleness=tau, sigma_global=problem.sigma_global
        ),
        rounds_needed(limits, n=m, local_steps=K),
        rounds_until_speed_up(n=m, local_steps=K, delay=tau),
    )


def judge_uniform(problem: Problem, rates: Rates, arrivals: Arrivals) -> Verdict:
    """Theorem 3."""
    limits = uniform_limits(problem.smoothness, arrivals)
    T, m, tau, K = _of(arrivals)
    return Verdict(
        3,
        "AFA-CD, workers equally likely to arrive",
        rates,
        uniform_conditions(problem.smoothness, rates, arrivals),
        uniform_bound(problem, rates, arrivals),
        limits,
        corollary_rates(rounds=T, n=m, local_steps=K),
        uniform_rate(rounds=T, m=m, local_steps=K, staleness=tau),
        rounds_needed(limits, n=m, local_steps=K),
        rounds_until_speed_up(n=m, local_steps=K, delay=tau),
    )


def judge_memory(problem: Problem, rates: Rates, memory: Memory) -> Verdict:
    """Theorem 4."""
    limits = memory_limits(problem.smoothness, memory)
    T, M, tau = memory.rounds, memory.workers, memory.row_age
    K = max(1, round(memory.sum_steps / M))
    return Verdict(
        4,
        "AFA-CS, arrivals of any kind",
        rates,
        memory_conditions(problem.smoothness, rates, memory),
        memory_bound(problem, rates, memory),
        limits,
        corollary_rates(rounds=T, n=M, local_steps=K),
        memory_rate(rounds=T, workers=M, local_steps=K, row_age=tau, fresh=memory.fresh),
        rounds_needed(limits, n=M, local_steps=K),
        rounds_until_speed_up(n=M, local_steps=K, delay=memory.delay),
    )


def _of(arrivals: Arrivals) -> tuple[int, int, int, int]:
    """T, m, tau and K; the corollary has one K, here the rounded mean."""
    return arrivals.rounds, arrivals.m, arrivals.staleness, round(arrivals.mean_steps)
