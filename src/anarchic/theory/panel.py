"""What the theorems say of a run of which only arrivals and rates are known: for the live page.

Whether the conditions on learning rates hold depends on L, which a server cannot know: the data
stayed with the workers. So the panel says up to which L they hold.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

from anarchic.participation.timetable import Timetable
from anarchic.theory.conditions import RateLimits, general_limits, memory_limits
from anarchic.theory.numbers import Rates
from anarchic.theory.observed import arrivals_of, balance_of, memory_of, steps_of


def panel(table: Timetable, rule: str, server_lr: float, local_lr: float) -> dict[str, Any]:
    """Delay, local steps and balance of these arrivals, and for which L the conditions hold.

    >>> from anarchic.participation import ConstantSteps, Sampler
    >>> table = Sampler(10, 5, ConstantSteps(5), max_staleness=0).timetable(0, rounds=9)
    >>> found = panel(table, "afa-cd", 1.0, 0.01)
    >>> found["theorem"], found["staleness"], found["largest_smoothness"]
    (2, 0, 1.4907)
    """
    arrivals, balance = arrivals_of(table), balance_of(table)
    found: dict[str, Any] = {
        "rule": rule,
        "updates": len(table),
        "rounds": arrivals.rounds,
        "workers": arrivals.workers,
        "m": arrivals.m,
        "staleness": arrivals.staleness,
        "staleness_mean": round(float(table.staleness.mean()), 3),
        "steps": list(steps_of(table).quartiles),
        "server_lr": server_lr,
        "local_lr": local_lr,
        "arrivals": balance.words,
        "shares": [round(balance.share_min, 5), round(balance.share_max, 5)],
        "theorem": None,
    }
    rates = Rates(server_lr=server_lr, local_lr=local_lr)
    if rule == "afa-cs":
        memory = memory_of(table)
        age = None if memory.row_age == inf else memory.row_age
        found |= {"theorem": 4, "row_age": age, "fresh": memory.fresh}
        return found | _largest(memory_limits(1.0, memory), rates)
    if rule == "afa-cd":
        found["theorem"] = 2
        return found | _largest(general_limits(1.0, arrivals), rates)
    return found


def _largest(limits: RateLimits, rates: Rates) -> dict[str, Any]:
    """The largest L that these rates allow: at L = 1 the limits are L times those at L."""
    found = {"local": limits.local_lr / rates.local_lr, "step": limits.step / rates.step}
    told = {name: _digits(value) for name, value in found.items()}
    return {"limits": told, "largest_smoothness": _digits(min(found.values()))}


def _digits(value: float) -> float | None:
    """Five digits; None where every L will do: JSON has no infinity."""
    return float(f"{value:.5g}") if isfinite(value) else None
