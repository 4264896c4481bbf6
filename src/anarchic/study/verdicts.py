"""What can be said of groups of runs: one against another, or against all others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from anarchic.core.validation import check_choice, did_you_mean
from anarchic.errors import ConfigError, RunError
from anarchic.stats.comparisons import Comparison, compare
from anarchic.study.bands import AXES
from anarchic.study.groups import (
    MEASURES,
    Asked,
    Group,
    by_seed,
    common_end,
    other_conditions,
)
from anarchic.study.results import DIGITS, Result
from anarchic.study.trainer import FAILED

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Test:
    """How groups are tested.

    ``measure`` is one of final, best, area and to_target; ``margin`` also tests whether they differ
    by less; ``lost_as`` is what counts for a run that diverged, failed or missed the target, which
    is refused without it.
    """

    __test__ = False  # for pytest, which looks for classes of this name

    measure: str = "final"
    margin: float | None = None
    alpha: float = 0.05
    interval: Literal["t", "bca"] = "t"
    lost_as: float | None = None

    def __post_init__(self) -> None:
        check_choice("measure", self.measure, MEASURES)
        check_choice("interval", self.interval, ("t", "bca"))


def compare_groups(
    groups: Sequence[Group], ours: str, theirs: str, asked: Asked, test: Test | None = None
) -> list[Comparison]:
    """The group ``ours`` against ``theirs``, or against ``all``, over common seeds."""
    test, known = test or Test(), {group.label: group for group in groups}
    ours = _label(ours, known)
    others = [n for n in known if n != ours] if theirs == ALL else [_label(theirs, known)]
    if ours in others or not others:
        raise ConfigError(f"There is nothing to compare {ours} with: name two groups.")
    if test.measure == "to_target" and asked.target is None:
        raise ConfigError("The measure to_target needs a target: give --target X.")
    compared = [known[name] for name in (ours, *others)]
    _check_conditions(compared)
    until = common_end(groups, asked)
    values = {
        each.label: by_seed(each, asked, test.measure, test.lost_as, until) for each in compared
    }
    _check_values(compared, values, asked, test.measure)
    pairs = [(ours, name) for name in others]
    return compare(
        values,
        pairs,
        margin=test.margin,
        alpha=test.alpha,
        method=test.interval,
        digits=DIGITS,
    )


def _check_conditions(groups: Sequence[Group]) -> None:
    """Refuse groups whose difference may come from something else than what makes them."""
    if others := other_conditions(groups):
        names = ",".join(dict.fromkeys([*(n for group in groups for n in group.by), *others]))
        raise ConfigError(
            f"{' and '.join(group.label for group in groups)} differ in {', '.join(others)} too, "
            "so a difference would not say which is better: compare runs under equal conditions, "
            f"or name these groups too, with --group-by {names}."
        )


def _check_values(
    groups: Sequence[Group],
    values: Mapping[str, Mapping[int, float]],
    asked: Asked,
    measure: str,
) -> None:
    """Refuse pairs of which a run has no value, and say why it has none."""
    ours, *others = groups
    told = []
    for group in groups:
        partners = others if group is ours else [ours]
        paired = {seed for each in partners for seed in values[each.label]}
        seeds: dict[str, list[int]] = {}
        for run in group.runs:
            if run.seed in paired and not isfinite(values[group.label][run.seed]):
                seeds.setdefault(without(run, asked, measure), []).append(run.seed)
        told += [f"{group.label} {why} with seeds {which}" for why, which in seeds.items()]
    if told:
        raise RunError(
            f"Runs without a value: {'; '.join(told)}. Say what counts in their place: "
            "--lost-as X, in Python Test(lost_as=X)."
        )


def without(run: Result, asked: Asked, measure: str) -> str:
    """Why a run has no value."""
    if run.stopped_at in ("diverged", FAILED):
        return str(run.stopped_at)
    if measure == "to_target" and len(asked.points(run)):
        return f"did not reach {asked.metric} {asked.target:g}"
    return f"has no {asked.metric} against {AXES[asked.against]}"


def _label(text: str, known: Collection[str]) -> str:
    """The group of this name; spaces and names of settings may be left out."""
    same = {way(label): label for way in (_bare, _unspaced) for label in known}
    if (found := same.get(_unspaced(text))) is not None:
        return found
    labels = ", ".join(f'"{label}"' for label in known)
    close = did_you_mean(text, known)
    raise ConfigError(f"There is no group {text!r}.{close} There are, in quotes, {labels}.")


def _unspaced(label: str) -> str:
    return ",".join(part.strip() for part in label.split(","))


def _bare(label: str) -> str:
    """Without the names of settings: ``afa-cd,0.5`` for ``afa-cd, server_lr=0.5``."""
    return ",".join(part.partition("=")[2] or part for part in _unspaced(label).split(","))


def sentences(found: Sequence[Comparison], asked: Asked, test: Test | None = None) -> list[str]:
    """What comparisons say, each in a sentence or two."""
    test = test or Test()
    if test.measure == "to_target":
        return [each.sentence(f"{AXES[asked.against]} to the target", lower=True) for each in found]
    return [each.sentence(f"{test.measure} {asked.metric}", lower=asked.lower) for each in found]


def caution(groups: Sequence[Group], found: Sequence[Comparison]) -> str:
    """What tests do not count: that settings were chosen by the runs that they compare."""
    names = {name for each in found for name in (each.ours, each.theirs)}
    if not (chosen := [group.label for group in groups if group.label in names and group.chosen]):
        return ""
    return (
        f"Of {', '.join(chosen)} the best of several settings was taken, by these same runs, which "
        "p-values and intervals do not count. Run the chosen settings again with new seeds before "
        "you say which is better, as anarchic tune does."
    )


def counted_as(groups: Sequence[Group], asked: Asked, test: Test) -> str:
    """Which runs ``lost_as`` stands for; nothing where there are none."""
    if test.lost_as is None:
        return ""
    lost = [
        f"{group.label} seed {run.seed}"
        for group in groups
        for run in group.runs
        if run in group.lost or asked.value(run, test.measure) is None
    ]
    return f"Without a value, and counted as {test.lost_as:g}: {', '.join(lost)}." if lost else ""
