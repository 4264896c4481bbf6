"""What can be said of groups of runs: one against another, or against all others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from anarchic.core.validation import check_choice, did_you_mean
from anarchic.errors import ConfigError
from anarchic.stats.comparisons import Comparison, compare
from anarchic.study.bands import AXES
from anarchic.study.groups import MEASURES, Asked, Group, by_seed

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
    values = {n: by_seed(known[n], asked, test.measure, test.lost_as) for n in (ours, *others)}
    pairs = [(ours, name) for name in others]
    return compare(values, pairs, margin=test.margin, alpha=test.alpha, method=test.interval)


def _label(text: str, known: Collection[str]) -> str:
    """The group of this name, with or without spaces after its commas."""
    same = {_unspaced(label): label for label in known}
    if (found := same.get(_unspaced(text))) is not None:
        return found
    labels = ", ".join(f'"{label}"' for label in known)
    close = did_you_mean(text, known)
    raise ConfigError(f"There is no group {text!r}.{close} There are, in quotes, {labels}.")


def _unspaced(label: str) -> str:
    return ",".join(part.strip() for part in label.split(","))


def sentences(found: Sequence[Comparison], asked: Asked, test: Test | None = None) -> list[str]:
    """What comparisons say, each in a sentence or two."""
    test = test or Test()
    if test.measure == "to_target":
        return [each.sentence(f"{AXES[asked.against]} to the target", lower=True) for each in found]
    return [each.sentence(f"{test.measure} {asked.metric}", lower=asked.lower) for each in found]


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
