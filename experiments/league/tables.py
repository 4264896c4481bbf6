"""The tables of the league: accuracy at the end, what a target costs, and the chosen rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anarchic.study import Findings, Outcome, Result
from anarchic.study.find import beside
from anarchic.study.tables import markdown

rules = beside(__file__, "rules")
places = beside(__file__, "places")
EDGE = "\\*"  # the mark of a rate at an end of its range
TARGET = 0.95  # of the best rule's accuracy in a place
ENTRIES = """
Accuracy on test data at the end, mean over the seeds ± half of its 95 % interval. **Bold**: the
best of a column. ?: not told apart from the best by these seeds (paired differences, Holm's
correction for all pairs of a column, 5 %), which is no praise: the more a rule varies, the sooner
it has a ?.
""".strip()
COSTS = """
Virtual hours / updates / MB (models down and updates up, all workers) until accuracy is {share:.0%}
of the column's best. "n of k" says how many seeds got there, where not all did.
""".strip()


def final_tables(found: Findings, task: str, skews: Mapping[str, str]) -> str:
    """For each skew accuracy at the end, then what a target costs."""
    parts, found = [], places.ended(found)
    for skew, said in skews.items():
        of_skew = {
            p[2]: f
            for p, f in places.by_place(found.where(task=task, skew=skew, whole=True)).items()
        }
        if of_skew:
            parts += [f"### {said}", ENTRIES, accuracy_table(of_skew)]
            parts += [COSTS.format(share=TARGET), cost_table(of_skew)]
    whole = designed(found, task, len(skews))
    return "\n\n".join([whole, *parts] if whole and parts else parts) or "Not run yet."


def designed(found: Findings, task: str, skews: int) -> str:
    """Which final cells the design has, and which of them there can be; nothing if that is all."""
    arrivals = len(dict.fromkeys(o.get("arrivals") for o in found.where(task=task)))
    every, known = skews * arrivals * len(rules.RULES), len(found.where(task=task))
    if known == every:
        return ""
    return (
        f"The design has {every} cells: {skews} skews, {arrivals} kinds of arrivals and "
        f"{len(rules.RULES)} rules. What is run in a cell is known once all tries of its rule "
        f"have results, as those of {known} cells have."
    )


def accuracy_table(by_arrivals: Mapping[str, Findings]) -> str:
    """Rules by arrivals."""
    level = {each: places.level_with_best(place) for each, place in by_arrivals.items()}
    top = {each: places.best(place) for each, place in by_arrivals.items()}

    def entry(rule: str, arrivals: str) -> str:
        outcome = _of(by_arrivals[arrivals], rule)
        if outcome is None:
            return "not run"
        text = places.with_interval(outcome)
        if top[arrivals] is outcome:
            return f"**{text}**"
        return f"{text} ?" if rule in level[arrivals] else text

    return _by_rule(by_arrivals, entry)


def cost_table(by_arrivals: Mapping[str, Findings]) -> str:
    """What it takes each rule to get near the best."""

    def entry(rule: str, arrivals: str) -> str:
        place = by_arrivals[arrivals]
        outcome, top = _of(place, rule), places.best(place)
        if outcome is None or top is None:
            return "not run"
        found = [reached(result, TARGET * top.ours) for result in outcome.results]
        known = [each for each in found if each is not None]
        if not known:
            return "never"
        hours, updates, mb = np.mean(known, axis=0)
        text = f"{hours:.1f} / {updates:,.0f} / {mb:,.0f}"
        return text if len(known) == len(found) else f"{text} ({len(known)} of {len(found)})"

    return _by_rule(by_arrivals, entry)


def reached(result: Result, target: float) -> tuple[float, float, float] | None:
    """Hours, updates and MB until a run's accuracy was first at the target."""
    columns = (result.curve[name] for name in ("virtual_s", "updates", "accuracy"))
    for seconds, updates, accuracy in zip(*columns, strict=True):
        if accuracy is not None and accuracy >= target:
            return (
                (seconds or 0) / 3600,
                updates or 0,
                2e-6 * (updates or 0) * result.numbers["bytes"],
            )
    return None


def search_table(found: Findings, task: str, bounds: Mapping[str, Any]) -> str:
    """How many tries diverged, and the rates that were chosen; those at an edge are marked."""
    tries = found.where(task=f"{task}-search").run
    lost = sum(len(outcome.diverged) for outcome in tries)
    ends = found.where(task=task, whole=True)
    edge = sum(len(list(rules.at_edge(o.get("rates"), bounds[o.get("rule")]))) for o in ends)
    said = (
        f"{lost} of {len(tries.results)} tries diverged. {edge} of the "
        f"{sum(len(o.get('rates')) for o in ends)} chosen rates, marked \\*, lie within 5 % of an "
        "end of their range on its log scale: beyond it there may be better ones."
    )
    parts = [said, *ties(found, task)]
    for skew in dict.fromkeys(outcome.get("skew") for outcome in ends):
        by = {p[2]: f for p, f in places.by_place(ends.where(skew=skew)).items()}
        parts += [
            f"Chosen rates, {skew}:",
            _by_rule(by, lambda r, a, by=by: _rates(by[a], r, bounds)),
        ]
    return "\n\n".join(parts)


def ties(found: Findings, task: str) -> list[str]:
    """The searches in which several tries were equally good; the first of them was taken."""
    ends, tied = found.where(task=task, whole=True), []
    for end in ends:
        where = {name: end.get(name) for name in ("skew", "arrivals", "rule")}
        tries = found.where(task=f"{task}-search", **where).run
        scores = [rules.score(result) for result in tries.results]
        if (count := scores.count(max(scores, default=0.0))) > 1:
            place = ", ".join([rules.NAMES[where["rule"]], where["skew"], where["arrivals"]])
            tied.append(f"{place} ({count} tries at {max(scores):.4f})")
    if not tied:
        return []
    return [
        f"In {len(tied)} of {len(ends)} searches several tries were equally good, and the first "
        f"was taken, which is arbitrary: {'; '.join(tied)}."
    ]


def _rates(place: Findings, rule: str, bounds: Mapping[str, Any]) -> str:
    found = place.where(rule=rule).outcomes
    if not found:
        return ""
    rates = found[0].get("rates")
    at_edge = list(rules.at_edge(rates, bounds[rule]))
    names = {"server_lr": "server", "local_lr": "local", "rule_options.mixing": "mixing"}
    return ", ".join(f"{names[n]} {v:g}{EDGE if n in at_edge else ''}" for n, v in rates.items())


def _by_rule(by_arrivals: Mapping[str, Findings], entry: Any) -> str:
    rows = [
        [rules.NAMES[rule], *(entry(rule, each) for each in by_arrivals)] for rule in rules.RULES
    ]
    return markdown(("rule", *by_arrivals), rows)


def _of(place: Findings, rule: str) -> Outcome | None:
    found: Sequence[Outcome] = place.where(rule=rule).run.outcomes
    return found[0] if found else None
