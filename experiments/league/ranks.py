"""Ranks over all places, and what they say to somebody who must choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from anarchic.stats import interval
from anarchic.study import Findings
from anarchic.study.find import beside
from anarchic.study.findings import differences
from anarchic.study.tables import markdown

rules = beside(__file__, "rules")
places = beside(__file__, "places")
ABOUT = """
Over all places (a task, a skew and a kind of arrivals) where every rule was run. The rank is that
of the mean accuracy, from 1 to {rules}, with a 95 % interval over the {count} places. They are no
random sample of anything: the interval says how much the rank changes from place to place.
*Behind* is how much lower the mean accuracy is than that of the best rule of the place, on average
and at worst; a rule of which a run diverged counts as 0 there. Of the synchronous rules the columns
of diurnal and biased arrivals are for workers that come when they are asked, as none do there.
{places}
""".strip()
WORTH = """
## What a table is worth

A rule with a row per worker less the rule nearest to it without, each with its own rates: accuracy
at the end, paired by seed, with a 95 % interval that is not corrected for the number of rows.
""".strip()
PAIRS = (("ca2fl", "fedbuff"), ("afa-cs", "afa-cd"))
KINDS = {
    "uniform": "If all workers are alike",
    "stragglers": "If some workers are ten times slower",
    "diurnal": "If workers come by day only",
    "biased": "If some workers come far more often",
}
FEW = 3  # rules that a sentence names
Table = Mapping[str, Sequence[float]]  # by rule, a number per place


def behind(each: Sequence[Findings]) -> dict[str, list[float]]:
    """How much lower each rule's accuracy is than the best one's, by place; 1 if all diverged."""
    found: dict[str, list[float]] = {rule: [] for rule in rules.RULES}
    for place in each:
        values = {o.get("rule"): places.counted(o) for o in place}
        top = max(values.values())
        for rule in found:
            found[rule].append(top - values[rule])
    return found


def ranks(lost: Table) -> dict[str, list[float]]:
    """Each rule's rank in each place; rules that are equal share the mean of their ranks."""
    columns = np.array([lost[rule] for rule in lost])  # (rules, places)
    lower = (columns[None] < columns[:, None]).sum(axis=1)
    same = (columns[None] == columns[:, None]).sum(axis=1)
    return dict(zip(lost, (lower + (same + 1) / 2).tolist(), strict=True))


def rank_table(
    found: Findings,
    names: Mapping[str, str],
    tries: Mapping[str, int],
    skews: Mapping[str, Mapping[str, str]],
) -> str:
    """The rules by mean rank, and which to take; ``tries`` per rule and place by task."""
    ends = places.by_place(places.ended(found))
    every = {key: place for key, place in ends.items() if places.complete(place)}
    if not every or not places.has_scipy():
        return ""
    lost = behind(list(every.values()))
    rank = ranks(lost)
    kinds = list(dict.fromkeys(arrivals for _, _, arrivals in every))
    rows = []
    for rule in sorted(rank, key=lambda rule: float(np.mean(rank[rule]))):
        by = [
            np.mean([r for r, key in zip(rank[rule], every, strict=True) if key[2] == kind])
            for kind in kinds
        ]
        rows.append(
            [
                rules.NAMES[rule], _with_interval(rank[rule]), *(f"{mean:.1f}" for mean in by),
                f"{np.mean(lost[rule]):.3f}", f"{max(lost[rule]):.3f}",
            ]
        )  # fmt: skip
    header = ("rule", "mean rank", *kinds, "behind", "at worst")
    by_task = shares(every, names, tries)
    about = ABOUT.format(rules=len(rules.RULES), count=len(every), places=by_task)
    text = ["## Which rule should I take?", *advice(every, names), about]
    return "\n\n".join([*text, markdown(header, rows), worth(every, names, skews)])


def shares(
    every: Mapping[tuple[str, str, str], Findings],
    names: Mapping[str, str],
    tries: Mapping[str, int],
) -> str:
    """How much each task counts, and how well its rules were tuned, in a sentence."""
    count = Counter(task for task, _, _ in every)
    each = [f"{names[task]} {n} ({tries[task]} tries per rule)" for task, n in count.items()]
    return f"The places by task: {', '.join(each)}."


def worth(
    every: Mapping[tuple[str, str, str], Findings],
    names: Mapping[str, str],
    skews: Mapping[str, Mapping[str, str]],
) -> str:
    """What a row per worker adds, by place."""
    rows = []
    for (task, skew, arrivals), place in every.items():
        less = [_difference(place, *pair) for pair in PAIRS]
        rows.append([names[task], skews[task][skew], arrivals, *less])
    pairs = (f"{rules.NAMES[one]} less {rules.NAMES[other]}" for one, other in PAIRS)
    return f"{WORTH}\n\n{markdown(('task', 'skew', 'arrivals', *pairs), rows)}"


def _difference(place: Findings, one: str, other: str) -> str:
    ours, theirs = (place.where(rule=rule).one() for rule in (one, other))
    values = list(differences(ours, theirs).values())
    return str(interval(values, method="t")) if len(values) > 1 else ""


def advice(every: Mapping[tuple[str, str, str], Findings], names: Mapping[str, str]) -> list[str]:
    """What the numbers say, in sentences."""
    lost = behind(list(every.values()))
    safest = sorted(lost, key=lambda rule: max(lost[rule]))[:FEW]
    said = [
        f"- **If you know nothing of your arrivals:** {_named(lost, FEW)} lose least on average. "
        f"{_worst(lost, safest)} lose least at worst."
    ]
    for kind in dict.fromkeys(key[2] for key in every):
        of_kind = behind([place for key, place in every.items() if key[2] == kind])
        if kind in rules.UNCALLED:
            of_kind = _without(of_kind, rules.SYNCHRONOUS)
        said.append(f"- **{KINDS[kind]}:** {_named(of_kind, FEW)}.")
    for task in dict.fromkeys(key[0] for key in every):
        of_task = behind([place for key, place in every.items() if key[0] == task])
        said.append(f"- **On {names[task]}:** {_named(of_task, FEW)}.")
    few = _without(lost, (*rules.KEEPS, *rules.SYNCHRONOUS))
    said.append(f"- **If the server may keep nothing of each worker:** {_named(few, FEW)}.")
    return [
        "\n".join(said),
        "In brackets: how far behind the best rule of the place, on average (accuracy). The "
        "sentences on workers that come by day or seldom leave out the synchronous rules, whose "
        "workers come when they are asked.",
    ]


def _without(lost: Table, names: Sequence[str]) -> Table:
    return {rule: values for rule, values in lost.items() if rule not in names}


def _named(lost: Table, count: int) -> str:
    order = sorted(lost, key=lambda rule: float(np.mean(lost[rule])))[:count]
    return ", ".join(f"{rules.NAMES[rule]} ({np.mean(lost[rule]):.3f})" for rule in order)


def _worst(lost: Table, names: Sequence[str]) -> str:
    return ", ".join(f"{rules.NAMES[rule]} ({max(lost[rule]):.3f})" for rule in names)


def _with_interval(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{np.mean(values):.1f}"
    found = interval(values, method="t")
    return f"{found.mean:.1f} [{max(1.0, found.low):.1f}, {found.high:.1f}]"
