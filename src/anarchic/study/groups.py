"""The runs of sweeps in groups, and what is said of each: final, best, area, time to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from anarchic.callbacks.best import LOW
from anarchic.core import factory
from anarchic.core.types import Floats
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError, RunError
from anarchic.study.conditions import DEFAULTS, differing, setting, unlike
from anarchic.study.findings import Outcome
from anarchic.study.grid import said
from anarchic.study.parts import check_same_parts
from anarchic.study.results import Result
from anarchic.study.sweeps import Sweep
from anarchic.study.trainer import FAILED

Against = Literal["round", "virtual_s", "updates", "bytes"]
AGAINST: tuple[str, ...] = get_args(Against)
Over = Literal["best", "all"]
NO_METRIC = ("round", "virtual_s", "updates", "local_steps", "test_samples", "bytes")


@dataclass(frozen=True)
class Group:
    """The runs that one line of a table, or one curve, is made of.

    ``chosen`` says which of several settings the runs are of, where the best was taken; ``by`` are
    the settings that make groups.
    """

    label: str
    runs: Sequence[Result]
    chosen: str = ""
    by: Sequence[str] = ()

    @property
    def lost(self) -> list[Result]:
        """Runs without a result to be averaged: they diverged or failed."""
        return [run for run in self.runs if run.stopped_at in ("diverged", FAILED)]

    @property
    def finished(self) -> list[Result]:
        return [run for run in self.runs if run.stopped_at not in ("diverged", FAILED)]


@dataclass(frozen=True)
class Asked:
    """What is asked of runs: a metric against rounds, virtual time, updates or bytes."""

    metric: str = "accuracy"
    against: Against = "round"
    target: float | None = None

    def __post_init__(self) -> None:
        check_choice("axis", self.against, AGAINST)

    @property
    def lower(self) -> bool:
        """Whether a lower value is better."""
        return self.metric.endswith(LOW)

    def points(self, run: Result) -> Floats:
        """(points, 2): where the metric is known, in order."""
        curve = run.curve
        y = curve.get(self.metric, ())
        x: Sequence[float | None] = (
            moved_bytes(run) if self.against == "bytes" else curve.get(self.against, ())
        )
        found = [(a, b) for a, b in zip(x, y, strict=False) if a is not None and b is not None]
        return np.array(found, np.float64).reshape(-1, 2)

    def value(self, run: Result, measure: str, until: float = np.inf) -> float | None:
        """One of ``final``, ``best``, ``area`` and ``to_target``; None where it is not known.

        ``area`` is that below the curve up to ``until``, divided by its width: the mean height.
        """
        points = self.points(run)
        if not len(points):
            return None
        y = points[:, 1]
        if measure == "final":
            return float(y[-1])
        if measure == "best":
            return float(y.min() if self.lower else y.max())
        return _area(points, until) if measure == "area" else self._to_target(points)

    def _to_target(self, points: Floats) -> float | None:
        if self.target is None:
            return None
        y = points[:, 1]
        there = np.flatnonzero(y <= self.target if self.lower else y >= self.target)
        return float(points[there[0], 0]) if len(there) else None


MEASURES = ("final", "best", "area", "to_target")


def _area(points: Floats, until: float) -> float:
    x, y = points.T
    end = min(until, float(x[-1]))
    inner = x < end
    grid = np.append(x[inner], end)
    heights = np.append(y[inner], np.interp(end, x, y))
    width = grid[-1] - grid[0]
    below = float((np.diff(grid) * (heights[1:] + heights[:-1]) / 2).sum())
    return below / float(width) if width > 0 else float(heights[-1])


def moved_bytes(run: Result) -> list[float | None]:
    """By evaluation, what folded and refused updates have moved."""
    updates = run.curve.get("updates", ())
    refused = run.curve.get("refused") or [0] * len(updates)
    each = bytes_per_update(run)
    return [
        None if folded is None else (folded + (in_vain or 0)) * each
        for folded, in_vain in zip(updates, refused, strict=True)
    ]


def bytes_per_update(run: Result) -> float:
    """What a visit moves: the model down and an update up, with the vectors beside them."""
    beside = len(factory.shared_names(str(run.settings.get("local_rule", "sgd"))))
    return 2 * (1 + beside) * float(run.numbers.get("model_bytes", 0))


def groups_of(
    sweeps: Sequence[Sweep], asked: Asked, *, by: Sequence[str] = (), over: Over = "best"
) -> list[Group]:
    """The runs of sweeps, by the values of some settings; of all that differ if none are named.

    Where a group has runs of several settings, ``best`` takes those whose mean is best at the end,
    by validation data where there are any, and ``all`` takes all runs.
    """
    check_choice("choice", over, get_args(Over))
    check_same_parts({str(each.path): each.parts() for each in sweeps})
    outcomes = [outcome for each in sweeps for outcome in each.findings()]
    for name in by:
        _check_setting(name)
    names = list(by) or differing([outcome.cell for outcome in outcomes])
    grouped: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        label = ", ".join(_named(name, setting(outcome.cell, name)) for name in names) or "all runs"
        same = grouped.setdefault(label, {})
        key = repr(sorted(outcome.cell.asked.items()))
        same[key] = _joined(same[key], outcome) if key in same else outcome
    _check_metric(outcomes, asked.metric)
    return [
        _group(label, list(same.values()), asked, over, names) for label, same in grouped.items()
    ]


def _named(name: str, value: Any) -> str:
    """A value in a label: a word speaks for itself, a number needs the name of its setting."""
    word = isinstance(value, str) and value[:1].isalpha()
    return str(value) if word else f"{name}={said(value)}"


def _check_setting(name: str) -> None:
    if name == "seed":
        raise ConfigError(
            "Runs that differ in their seed alone are one group, and nothing can be grouped by "
            "seed: name other settings."
        )
    check_choice("setting", name.partition(".")[0], [each for each in DEFAULTS if each != "seed"])


def _check_metric(outcomes: Sequence[Outcome], metric: str) -> None:
    runs = [run for outcome in outcomes for run in outcome.results]
    known = dict.fromkeys(n for run in runs for n in run.curve if n not in NO_METRIC)
    if known:
        check_choice("metric", metric, list(known))


def _joined(one: Outcome, other: Outcome) -> Outcome:
    """The runs of equal cells of two sweeps; a run that both have counts once."""
    found = {run.seed: run for run in one.results}
    for run in other.results:
        if run.seed in found and found[run.seed].numbers.get("model") != run.numbers.get("model"):
            raise RunError(
                f"Two sweeps have different results of {run.cell} with seed {run.seed}: compare "
                "one of them."
            )
        found[run.seed] = run
    return Outcome(one.cell, [found[seed] for seed in sorted(found)])


def _group(
    label: str, outcomes: Sequence[Outcome], asked: Asked, over: Over, by: Sequence[str]
) -> Group:
    if len(outcomes) == 1:
        return Group(label, outcomes[0].results, by=by)
    if over == "all":
        return Group(label, [run for outcome in outcomes for run in outcome.results], by=by)
    if others := unlike((outcome.cell.asked for outcome in outcomes), by):
        raise ConfigError(
            f"The group {label} has runs that differ in {', '.join(others)}, and under such "
            "different conditions none of its settings is the best: give --group-by "
            f"{','.join([*by, *others])}, or --over all."
        )
    chosen = best_of(outcomes, asked.metric)
    names = differing([outcome.cell for outcome in outcomes])
    told = ", ".join(f"{name}={said(setting(chosen.cell, name))}" for name in names)
    return Group(label, chosen.results, told, by)


def other_conditions(groups: Sequence[Group]) -> list[str]:
    """The conditions besides what makes groups by which their runs differ."""
    by = [name for group in groups for name in group.by]
    return unlike((run.settings for group in groups for run in group.runs), by)


def best_of(outcomes: Sequence[Outcome], metric: str) -> Outcome:
    """The outcome whose mean at the end is best; one with a lost run is behind all without."""
    every = [run for outcome in outcomes for run in outcome.results]
    name = metric if metric.startswith("val_") else f"val_{metric}"
    asked = Asked(name if any(name in run.curve for run in every) else metric)

    def rank(outcome: Outcome) -> tuple[int, float]:
        group = Group("", outcome.results)
        values = [v for run in group.finished if (v := asked.value(run, "final")) is not None]
        mean = float(np.mean(values)) if values else np.inf if asked.lower else -np.inf
        return -len(group.lost) if group.runs else -(10**9), -mean if asked.lower else mean

    return max(outcomes, key=rank)


def uneven(groups: Sequence[Group]) -> str:
    """That groups have different seeds, so that their means do not compare; nothing if not."""
    seeds = {group.label: {run.seed for run in group.runs} for group in groups}
    common = set.intersection(*seeds.values()) if seeds else set()
    more = [f"{name} has {len(each)}" for name, each in seeds.items() if each != common]
    if not more:
        return ""
    return f"{len(common)} of the seeds are common to all groups, but {', '.join(more)}"


def by_seed(
    group: Group, asked: Asked, measure: str, lost_as: float | None, until: float = np.inf
) -> dict[int, float]:
    """A measure by seed, for paired comparisons; ``lost_as`` stands for runs without a value.

    Areas are those up to ``until``.
    """
    found: dict[int, float] = {}
    for run in group.runs:
        if run.seed in found:
            raise ConfigError(
                f"{group.label} has several runs with seed {run.seed}: compare one setting with "
                "another, with --over best or a finer --group-by."
            )
        value = None if run in group.lost else asked.value(run, measure, until)
        if value is None:
            value = float("nan") if lost_as is None else lost_as
        found[run.seed] = value
    return found


def table_row(group: Group, asked: Asked, until: float) -> Mapping[str, list[float]]:
    """Each measure of the runs that were finished."""
    return {
        name: [v for run in group.finished if (v := asked.value(run, name, until)) is not None]
        for name in MEASURES
    }


def common_end(groups: Sequence[Group], asked: Asked) -> float:
    """Where the shortest of all finished curves ends: areas are compared up to there."""
    curves = [asked.points(run) for group in groups for run in group.finished]
    return min((float(points[-1, 0]) for points in curves if len(points)), default=np.inf)
