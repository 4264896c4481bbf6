"""A place is a task, a skew and a kind of arrivals; in each all rules were run with equal seeds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import fmean

from anarchic.errors import ConfigError
from anarchic.stats import compare, interval
from anarchic.study import Findings, Outcome, Result
from anarchic.study.find import beside
from anarchic.study.results import DIGITS

rules = beside(__file__, "rules")
ALPHA = 0.05
END = 0.95  # from this share of the virtual time on, evaluations count as the end
Place = tuple[str, str, str]  # task, skew, arrivals


def ended(found: Findings) -> Findings:
    """The final outcomes with accuracy at the end as their value.

    That is the mean of the evaluations in the last twentieth of the virtual time, or the last one:
    the same time for all rules. Ten versions are the whole run of a rule that waits for stragglers.
    """
    outcomes = [outcome for outcome in found if outcome.get("try") is None]
    return Findings(
        [
            replace(o, cell=replace(o.cell, value="end"), results=[with_end(r) for r in o.results])
            for o in outcomes
        ]
    )


def with_end(result: Result) -> Result:
    seconds, accuracy = result.curve.get("virtual_s", []), result.curve.get("accuracy", [])
    since = END * (result.settings.get("until_s") or 0.0)
    late = [a for s, a in zip(seconds, accuracy, strict=True) if s >= since] or accuracy[-1:]
    end = {"end": fmean(late)} if len(late) else {}
    return replace(result, numbers={**result.numbers, **end})


def by_place(found: Findings) -> dict[Place, Findings]:
    """The outcomes of each place, of those that are final."""
    groups: dict[Place, list[Outcome]] = {}
    for outcome in found:
        if outcome.get("try") is None:
            key = outcome.cell.task, outcome.get("skew"), outcome.get("arrivals")
            groups.setdefault(key, []).append(outcome)
    return {key: Findings(group) for key, group in groups.items()}


def complete(place: Findings) -> bool:
    """Whether every rule was run here, with equal seeds."""
    seeds = {tuple(result.seed for result in outcome.results) for outcome in place}
    return len(place.run) == len(rules.RULES) and len(seeds) == 1


def counted(outcome: Outcome) -> float:
    """Mean accuracy as it counts against other rules: 0 for a rule of which a run diverged."""
    return 0.0 if outcome.ours is None or outcome.diverged else outcome.ours


def best(place: Findings) -> Outcome | None:
    """The rule with the highest mean accuracy, of those of which no run diverged."""
    safe = [o for o in place.run if not o.diverged and o.ours is not None]
    return max(safe, key=lambda outcome: outcome.ours or 0.0, default=None)


def level_with_best(place: Findings) -> list[str]:
    """The rules of which it was not shown that they are worse than the best (Holm, paired).

    The best is known from the same seeds, so p-values are corrected for all pairs of rules, not
    only for those with the best: where 15 rules are equal, that would tell one apart in 12 of 100.
    """
    top = best(place)
    values = {o.get("rule"): o.by_seed() for o in place.run if not o.diverged}
    if top is None or min(map(len, values.values())) < 2:
        return []
    name = top.get("rule")
    pairs = [(one, other) for one, other in combinations(values, 2)]
    level = (each for each in compare(values, pairs, digits=DIGITS) if each.p >= ALPHA)
    both = [(each.ours, each.theirs) for each in level]
    return [other if one == name else one for one, other in both if name in (one, other)]


def with_interval(outcome: Outcome, digits: int = 3) -> str:
    """Mean accuracy with half of its 95 % interval, by Student's t."""
    values = outcome.values(outcome.cell.value)
    if not values:
        return "diverged" if outcome.results else "not run"
    text = f"{outcome.ours:.{digits}f}"
    if len(values) > 1:
        found = interval(values, method="t")
        text += f" ± {found.high - found.mean:.{digits}f}"
    if outcome.diverged:
        text += f", {len(outcome.diverged)} of {len(outcome.results)} diverged"
    return text


def has_scipy() -> bool:
    try:
        interval([0.0, 1.0], method="t")
    except ConfigError:
        return False
    return True
