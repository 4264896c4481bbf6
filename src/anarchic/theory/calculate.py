"""The theorems for given numbers, without a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anarchic.theory.known import PROBLEM, RATES, KnownNumbers
from anarchic.theory.numbers import Arrivals, Memory, Problem, Rates
from anarchic.theory.rates import corollary_rates
from anarchic.theory.verdict import Verdict, judge_general, judge_memory, judge_uniform

DEFAULTS: Mapping[str, int] = {
    "rounds": 10_000,
    "workers": 10,
    "m": 5,
    "local_steps": 5,
    "staleness": 0,
}
"""Participation where it is not given; the numbers of the problem are 1."""


@dataclass(frozen=True)
class Calculation:
    """Theorems 2, 3 and 4, and the numbers that they were applied to."""

    problem: Problem
    arrivals: Arrivals
    memory: Memory
    verdicts: tuple[Verdict, Verdict, Verdict]


def calculate(known: KnownNumbers | None = None) -> Calculation:
    """The theorems for known numbers; ``DEFAULTS`` and 1 for the others.

    Learning rates that are not given are those of the corollaries (eta with M in place of m for
    Theorem 4). Where neither ``row_age`` nor ``fresh`` is given, the workers take turns: a row is
    replaced every ceil(M / m) rounds, by an update of the largest staleness, after half as many
    steps along it on average; m rows are without delay if the staleness is 0.

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
    turns = {"row_age": tau + last, "fresh": 0 if tau else min(m, M)}
    used = None if rows else last / 2
    memory = Memory.steady(workers=M, rounds=T, local_steps=K, used=used, **turns | rows)
    by_m, by_workers = (_rates(known, rounds=T, n=n, local_steps=K) for n in (m, M))
    verdicts = (
        judge_general(problem, by_m, arrivals),
        judge_uniform(problem, by_m, arrivals),
        judge_memory(problem, by_workers, memory),
    )
    return Calculation(problem, arrivals, memory, verdicts)


def _rates(known: KnownNumbers, *, rounds: int, n: int, local_steps: int) -> Rates:
    usual = corollary_rates(rounds=rounds, n=n, local_steps=local_steps)
    rates = {"server_lr": usual.server_lr, "local_lr": usual.local_lr}
    return Rates(**rates | known.given(RATES))
