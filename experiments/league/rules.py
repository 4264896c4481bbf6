"""The rules of the league, their tries, and the rates that the tries chose."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from anarchic.study.cell import Cell
from anarchic.study.results import Results
from anarchic.study.tuning import EDGE, RANGES_OF, RandomSearch, Tuning, ranges_of

WORKERS = 20
# By name: the rule, and what it has besides its rates. m is 5 where a rule takes any m.
RULES: dict[str, dict[str, Any]] = {
    "afa-cd": {"rule": "afa-cd"},
    "afa-cs": {"rule": "afa-cs"},
    "fedavg": {"rule": "fedavg"},
    "fedvarp": {"rule": "fedvarp"},
    "fedasync": {"rule": "fedasync"},
    "fedasync-hinge": {"rule": "fedasync", "rule_options": {"discount": "hinge"}},
    "fedbuff": {"rule": "fedbuff"},
    "ca2fl": {"rule": "ca2fl"},
    "mifa": {"rule": "mifa"},
    "ace": {"rule": "ace"},
    "fadas": {"rule": "fadas"},
    "async-sgd": {"rule": "async-sgd", "rule_options": {"limit": WORKERS}},
    "fednova": {"rule": "fednova"},
    "feddyn": {"rule": "feddyn", "local_rule": "dyn"},
    "area": {"rule": "area"},
}
SYNCHRONOUS = ("fedavg", "fedvarp")  # rounds that wait for the slowest of the m that were picked
UNCALLED = ("diurnal", "biased")  # arrivals under which workers do not come when they are asked
EVERY_UPDATE = ("fedasync", "fedasync-hinge", "ace", "async-sgd", "area")  # m is 1
KEEPS = (
    *("afa-cs", "fedvarp", "ca2fl", "mifa", "ace", "area", "feddyn"),
)  # a vector of each worker, at the server or, feddyn, at the worker
TABLES = ("afa-cs", "mifa", "ca2fl")  # asynchronous, with a row per worker
NAMES = {
    "afa-cd": "AFA-CD",
    "afa-cs": "AFA-CS",
    "fedavg": "FedAvg (synchronous)",
    "fedvarp": "FedVARP (synchronous)",
    "fedasync": "FedAsync",
    "fedasync-hinge": "FedAsync, hinge",
    "fedbuff": "FedBuff",
    "ca2fl": "CA2FL",
    "mifa": "MIFA",
    "ace": "ACE",
    "fadas": "FADAS",
    "async-sgd": "delay-adaptive SGD",
    "fednova": "FedNova",
    "feddyn": "FedDyn",
    "area": "AREA",
}
Rates = Mapping[str, float]  # by setting, a dot before an entry of a mapping


def ranges(rule: str, own: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """What is tuned of a rule, from where to where; ``own`` are the ranges of a task.

    A rule keeps a range of its own, such as that of FADAS's rate.
    """
    name = RULES[rule]["rule"]
    usual = ranges_of(name, None)
    return usual | {n: r for n, r in own.items() if n in usual and n not in RANGES_OF.get(name, {})}


@cache
def _tries(budget: int, own: tuple[tuple[str, tuple[float, float]], ...]) -> dict[str, Any]:
    asked = {rule: ranges(rule, dict(own)) for rule in RULES}
    drawn = next(RandomSearch(Tuning(rules=list(RULES), budget=budget, ranges=asked)).steps())
    return dict(drawn)


def tries(rule: str, budget: int, own: Mapping[str, tuple[float, float]]) -> list[Rates]:
    """The rates to try; rules with the same setting and range get the same values."""
    return list(_tries(budget, tuple(own.items()))[rule])


def with_rates(settings: Mapping[str, Any], rule: str, rates: Rates) -> dict[str, Any]:
    """The settings of a run of this rule with these rates."""
    found: dict[str, Any] = {**settings, **RULES[rule]}
    for name, value in rates.items():
        head, dot, entry = name.partition(".")
        found[head] = {**found.get(head, {}), entry: value} if dot else value
    return found


def chosen(results: Results, tries: list[Cell], drawn: list[Rates]) -> Rates | None:
    """The rates of the best try; None before all tries have results, or where none finished."""
    found = [results.by_key.get((cell.task, cell.name, 0)) for cell in tries]
    if not all(r and cell.answered_by(r.settings) for r, cell in zip(found, tries, strict=True)):
        return None
    values = [score(each) for each in found]
    best = max(range(len(values)), key=values.__getitem__)
    return drawn[best] if values[best] > -math.inf else None


def score(result: Any) -> float:
    """What tries are compared by; a run that diverged is below all others."""
    value = result.numbers.get("val")
    return -math.inf if result.diverged or value is None else float(value)


def at_edge(rates: Rates, bounds: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """The rates that lie at an end of their range: beyond it there may be better ones."""
    for name, (low, high) in bounds.items():
        share = math.log(rates[name] / low) / math.log(high / low)
        if not EDGE < share < 1 - EDGE:
            yield name
