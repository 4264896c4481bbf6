"""The theorems for numbers that somebody thinks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anarchic.errors import ConfigError
from anarchic.theory.numbers import Arrivals, Memory, Problem, Rates
from anarchic.theory.rates import corollary_rates
from anarchic.theory.verdict import Verdict, judge_general, judge_memory, judge_uniform

PROBLEM = {"smoothness": 1.0, "sigma_local": 1.0, "sigma_global": 1.0, "gap": 1.0}
TURNOUT = {"rounds": 10_000, "workers": 10, "m": 5, "local_steps": 5, "staleness": 0}
RATES: tuple[str, ...] = ("server_lr", "local_lr")
ROWS: tuple[str, ...] = ("row_age", "fresh")


@dataclass(frozen=True)
class Calculation:
    """Theorems 2, 3 and 4, and the numbers they were held against."""

    problem: Problem
    arrivals: Arrivals
    memory: Memory
    verdicts: tuple[Verdict, Verdict, Verdict]


def calculate(
    known: Mapping[str, float] | None = None, turnout: Mapping[str, int] | None = None
) -> Calculation:
    """The theorems for some numbers by name; the others are those of ``PROBLEM`` and ``TURNOUT``.

    ``known`` may also hold ``server_lr`` and ``local_lr``, else they are the corollaries' (eta with
    M in place of m for Theorem 4), and ``turnout`` also ``row_age`` and ``fresh``: without them the
    workers take turns, so that a row is replaced every ceil(M / m) rounds, by an update as stale as
    any, after half as many steps along it in the mean, and m rows are without delay where none is
    stale.

    >>> found = calculate({"sigma_global": 2.0}, {"rounds": 1_000_000})
    >>> [verdict.holds for verdict in found.verdicts], found.verdicts[0].bound.floor
    ([True, True, True], 24.0)
    """
    known, turnout = dict(known or {}), dict(turnout or {})
    rates = {name: known.pop(name) for name in RATES if name in known}
    rows = {name: turnout.pop(name) for name in ROWS if name in turnout}
    strange = sorted(known.keys() - PROBLEM.keys() | turnout.keys() - TURNOUT.keys())
    if strange:
        raise ConfigError(f"The theorems know no {', '.join(strange)}.")
    problem = Problem(**PROBLEM | known)
    numbers = TURNOUT | turnout
    arrivals = Arrivals.steady(**numbers)
    T, M, K = numbers["rounds"], numbers["workers"], numbers["local_steps"]
    m, tau = numbers["m"], numbers["staleness"]
    last = -(-M // m) - 1  # steps along a row before the one that it is replaced after
    turns = {"row_age": tau + last, "fresh": 0 if tau else min(m, M)}
    used = None if rows else last / 2
    memory = Memory.steady(workers=M, rounds=T, local_steps=K, used=used, **turns | rows)
    by_m, by_workers = (_filled(rates, rounds=T, n=n, local_steps=K) for n in (m, M))
    verdicts = (
        judge_general(problem, by_m, arrivals),
        judge_uniform(problem, by_m, arrivals),
        judge_memory(problem, by_workers, memory),
    )
    return Calculation(problem, arrivals, memory, verdicts)


def _filled(given: Mapping[str, float], *, rounds: int, n: int, local_steps: int) -> Rates:
    usual = corollary_rates(rounds=rounds, n=n, local_steps=local_steps)
    return Rates(
        server_lr=given.get("server_lr", usual.server_lr),
        local_lr=given.get("local_lr", usual.local_lr),
    )
