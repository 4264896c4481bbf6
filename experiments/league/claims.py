"""What is claimed of the league. The bounds were fixed before any final run was looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from anarchic.study import Claim, Findings, Outcome
from anarchic.study.find import beside
from anarchic.study.findings import difference

rules = beside(__file__, "rules")
places = beside(__file__, "places")
CLOSE = 0.02  # of accuracy, at equal virtual time
BIAS = 0.01  # of accuracy, from uniform to biased arrivals
CARRY = 0.5  # rank correlation
REASONS = {  # why a bound was missed
    (
        "cnn",
        "fedavg",
    ): "It is FADAS with two labels: none of its six tries learnt much. FedDyn diverged once.",
    ("cnn", "best"): (
        "It is diurnal arrivals: FedVARP may pick anybody at any hour, also those who are asleep."
    ),
    ("cnn", "table"): (
        "The difference is well within the intervals. MIFA, which is AFA-CS with local steps "
        "counted, found smaller local rates among the same tries and is far above both."
    ),
    ("cnn", "lost"): "FADAS and FedDyn, with rates that held for the seed of the search.",
    ("text", "table"): (
        "Roles differ little in their next characters, so the table has little to mend, and the "
        "rows of workers that seldom come are old."
    ),
    ("text", "bias"): "It is MIFA or AFA-CS, whose rows of workers that seldom come are old.",
}
ORDER = (
    "The order depends on the task: FADAS is best on Shakespeare and last for the CNN, and a table "
    "is worth much only where each worker has few labels."
)
ASYNCHRONOUS = tuple(rule for rule in rules.RULES if rule not in rules.SYNCHRONOUS)


def claims(names: Mapping[str, str], skewed: Mapping[str, str]) -> list[Claim]:
    """The claims of each task; ``skewed`` is its stronger skew."""
    every = [at_end(claim) for task in names for claim in of_task(task, names[task], skewed[task])]
    pairs = [
        Claim(
            text=f"{names[one]} and {names[other]}: rank correlation of the rules' mean accuracies",
            of={"task": (one, other)},
            value=partial(correlation, tasks=(one, other)),
            at_least=CARRY,
            counts_diverged=True,
            reason=ORDER,
        )
        for one, other in combinations(names, 2)
    ]
    return every + [at_end(pair) for pair in pairs]


def at_end(claim: Claim) -> Claim:
    """The claim about accuracy at the end."""
    value, of = claim.value, {**claim.of, "whole": True}  # places where all rules were searched
    return replace(claim, of=of, value=lambda found: value(places.ended(found)))


def of_task(task: str, name: str, skew: str) -> list[Claim]:
    biased = {"task": task, "skew": skew, "arrivals": "biased"}
    return [
        Claim(
            text=f"{name}: AFA-CS less AFA-CD, biased arrivals, stronger skew",
            of={**biased, "rule": ("afa-cs", "afa-cd")},
            value=partial(less, of="afa-cs", over="afa-cd"),
            at_least=0.0,
            reason=REASONS.get((task, "table"), ""),
        ),
        Claim(
            text=f"{name}: CA2FL less FedBuff, biased arrivals, stronger skew",
            of={**biased, "rule": ("ca2fl", "fedbuff")},
            value=partial(less, of="ca2fl", over="fedbuff"),
            at_least=0.0,
        ),
        Claim(
            text=f"{name}: the worst asynchronous rule less FedAvg, stragglers, worst skew",
            of={"task": task, "arrivals": "stragglers", "rule": ("fedavg", *ASYNCHRONOUS)},
            value=worst_less_fedavg,
            at_least=-CLOSE,
            reason=REASONS.get((task, "fedavg"), ""),
        ),
        Claim(
            text=f"{name}: the best asynchronous rule less the best synchronous one, worst place",
            of={"task": task},
            value=best_less_synchronous,
            at_least=0.0,
            reason=REASONS.get((task, "best"), ""),
            counts_diverged=True,
        ),
        Claim(
            text=f"{name}: the most that a rule with a table (AFA-CS, MIFA, CA2FL) loses from "
            "uniform to biased arrivals",
            of={"task": task, "arrivals": ("uniform", "biased"), "rule": rules.TABLES},
            value=cost_of_bias,
            at_most=BIAS,
            reason=REASONS.get((task, "bias"), ""),
        ),
        Claim(
            text=f"{name}: share of final runs that diverged",
            of={"task": task},
            value=lost_share,
            at_most=0.0,
            counts_diverged=True,
            reason=REASONS.get((task, "lost"), ""),
        ),
    ]


def less(found: Findings, of: str, over: str) -> float | None:
    """The mean paired difference of two rules; None before both were run."""
    one, other = found.where(rule=of).outcomes, found.where(rule=over).outcomes
    return difference(one[0], other[0]) if one and other else None


def least(values: Sequence[float | None], count: int) -> float | None:
    """The smallest of these values; None where one is missing."""
    known = [value for value in values if value is not None]
    return min(known) if len(known) == count and count else None


def worst_less_fedavg(found: Findings) -> float | None:
    each = places.by_place(found)
    values = [less(place, rule, "fedavg") for place in each.values() for rule in ASYNCHRONOUS]
    return least(values, len(each) * len(ASYNCHRONOUS))


def best_less_synchronous(found: Findings) -> float | None:
    each = places.by_place(found)
    if not all(places.complete(place) for place in each.values()):
        return None
    return least(
        [_best(p, ASYNCHRONOUS) - _best(p, rules.SYNCHRONOUS) for p in each.values()], len(each)
    )


def _best(place: Findings, names: Sequence[str]) -> float:
    return max(places.counted(outcome) for outcome in place.where(rule=tuple(names)))


def cost_of_bias(found: Findings) -> float | None:
    """The most that accuracy falls, over rules and skews."""
    falls = [
        _change(found.where(skew=skew, rule=rule))
        for skew in dict.fromkeys(o.get("skew") for o in found)
        for rule in rules.TABLES
    ]
    low = least(falls, len(falls))
    return None if low is None else -low


def _change(pair: Findings) -> float | None:
    by: dict[str, Outcome] = {outcome.get("arrivals"): outcome for outcome in pair}
    return difference(by["biased"], by["uniform"]) if len(by) == 2 else None


def lost_share(found: Findings) -> float | None:
    lost = sum(len(outcome.diverged) for outcome in found)
    return lost / len(found.results)


def correlation(found: Findings, tasks: tuple[str, str]) -> float | None:
    """Spearman's: how far the order of the rules on one task is that on the other."""
    means = [_means(found.where(task=task)) for task in tasks]
    if not all(len(mean) == len(rules.RULES) for mean in means):
        return None
    one, other = (_ranked([mean[rule] for rule in rules.RULES]) for mean in means)
    return float(np.corrcoef(one, other)[0, 1])


def _means(found: Findings) -> dict[str, float]:
    """Mean accuracy of each rule over all places of a task."""
    of = {r: [places.counted(o) for o in found.where(rule=r) if o.results] for r in rules.RULES}
    count = len(places.by_place(found))
    return {rule: float(np.mean(each)) for rule, each in of.items() if len(each) == count}


def _ranked(values: Sequence[float]) -> np.ndarray:
    return np.argsort(np.argsort(values))
