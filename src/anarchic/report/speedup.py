"""What reaching a target costs, by the size of a setting: numbers from runs, and their picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core import factory
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError
from anarchic.report.figure import check_format, line_style, new_figure, save, style
from anarchic.report.runs import RecordedRun, check_metric
from anarchic.sim.settings import Settings, partition
from anarchic.stats import Exponent
from anarchic.train.compute import Compute

FALLING = ("loss", "distance", "error", "rmse")  # in the name of a metric that is to fall
AXES = ("round", "updates", "local_steps", "virtual_s")
ALIKE = (  # settings in which repeats may differ
    *("seed", "rounds", "until_s", "eval_every", "eval_samples", "last10", "target_accuracy"),
    *("data_dir", "fingerprint", "trace", "compute", "format"),
    *(each.name for each in fields(Compute)),  # of runs recorded before these had a place
)


@dataclass(frozen=True)
class Costs:
    """What runs paid until they reached a target.

    ``by_size`` has one cost per run, ``short`` names the runs that never reached it. ``coarsest``
    is the largest distance between the two evaluations around the target, as a share of the cost.
    """

    by_size: dict[float, list[float]]
    short: list[str]
    coarsest: float


def costs_of(runs: Sequence[RecordedRun], *, over: str, to: str, against: str) -> Costs:
    """What each run paid until it reached the target, by size.

    ``to`` is METRIC=VALUE. A cost is where the line between the evaluations before and after meets
    the target. Sizes of which a run never reached it are left out: the others of that size would be
    the lucky ones.
    """
    metric, target = _target(to)
    check_metric(runs, metric)
    check_choice("axis", against, AXES)
    _check_axis(runs, against)
    _check_repeats(runs, over)
    costs: dict[float, list[float]] = {}
    short, sizes_short, coarsest = [], set(), 0.0
    for run in runs:
        size = _size(run, over)
        found = _reached(run, metric, target, against)
        if found is None:
            short.append(run.name)
            sizes_short.add(size)
        else:
            cost, apart = found
            coarsest = max(coarsest, apart / cost)
            costs.setdefault(size, []).append(cost)
    kept = {size: each for size, each in costs.items() if size not in sizes_short}
    if not kept:
        raise ConfigError(f"None of the runs reached {to}; {_nearest(runs, metric)}.")
    return Costs(kept, short, coarsest)


def other_differences(runs: Sequence[RecordedRun], over: str) -> list[str]:
    """Settings besides ``over`` that differ between the runs, and may be the reason instead."""
    return _differing([_compared(run) for run in runs], over)


def _check_repeats(runs: Sequence[RecordedRun], over: str) -> None:
    """Refuse runs of one size that differ in more than the seed: they are no repeats."""
    by_size: dict[float, list[RecordedRun]] = {}
    for run in runs:
        by_size.setdefault(_size(run, over), []).append(run)
    for size, each in by_size.items():
        if other := _differing([_compared(run) for run in each], over):
            raise ConfigError(
                f"{', '.join(run.name for run in each)} have {over} = {size:g} and differ in "
                f"{', '.join(other)} too, so they are no repeats: leave some of them out."
            )


def _compared(run: RecordedRun) -> dict[str, Any]:
    return {name: value for name, value in run.settings.items() if name not in ALIKE}


def _differing(settings: Sequence[dict[str, Any]], over: str) -> list[str]:
    names = dict.fromkeys(name for each in settings for name in each if name != over)
    return [n for n in names if any(each.get(n) != settings[0].get(n) for each in settings[1:])]


def _nearest(runs: Sequence[RecordedRun], metric: str) -> str:
    """How near the runs came."""
    values = [v for run in runs for row in run.metrics if (v := row.get(metric)) is not None]
    best = min(values) if _falls(metric) else max(values)
    return f"the best {metric} was {best:.4g}"


def _falls(metric: str) -> bool:
    return any(word in metric for word in FALLING)


def _target(to: str) -> tuple[str, float]:
    metric, equals, value = to.partition("=")
    try:
        if not equals or not isfinite(float(value)):
            raise ValueError
        return metric, float(value)
    except ValueError:
        raise ConfigError(f"A target is METRIC=VALUE, such as loss=0.4, got {to!r}.") from None


def _check_axis(runs: Sequence[RecordedRun], against: str) -> None:
    """Refuse runs that did not count what is asked for."""
    if lacking := [r.name for r in runs if all(row.get(against) is None for row in r.metrics)]:
        who = "all runs" if len(lacking) == len(runs) else ", ".join(lacking)
        why = " (no clock)" if against == "virtual_s" else ""
        raise ConfigError(
            f"Nothing is known of {against}{why} in {who}: count one of {', '.join(AXES)} that all "
            "runs have. Runs in continuous time have a clock."
        )


def _size(run: RecordedRun, over: str) -> float:
    value = run.settings.get(over)
    if value is None:
        value = _default(run, over)
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = [n for n, v in _compared(run).items() if type(v) in (int, float)]
        raise ConfigError(
            f"The run {run.name} has no number {over!r} among its settings, but {value!r}; numbers "
            f"are {', '.join(dict.fromkeys(['m', 'workers', *known]))}."
        )
    return float(value)


def _default(run: RecordedRun, over: str) -> Any:
    """The value of a setting that was not given: the data's, or the rule's own."""
    if over == "workers" and "data" in run.settings:
        return len(partition(Settings.from_record(run.settings))[1])
    names = {f.name for f in fields(factory.RuleSettings)} & run.settings.keys()
    if over not in names:
        return None
    chosen = factory.RuleSettings(**{name: run.settings[name] for name in names})
    rule = factory.make_rule(replace(chosen, workers=chosen.workers or 1), {"population": 1})
    return getattr(rule.innermost, over, None)


def _reached(
    run: RecordedRun, metric: str, target: float, against: str
) -> tuple[float, float] | None:
    """Where a run met the target, and how far apart the evaluations around it are."""
    falls, before = _falls(metric), None
    for row in run.metrics:
        value, cost = row.get(metric), row.get(against)
        if value is None or cost is None:
            continue
        if value > target if falls else value < target:
            before = float(cost), value
        elif not cost:
            raise ConfigError(
                f"The run {run.name} has {metric} {value:.4g} before training, which meets "
                f"{metric}={target:g} at no cost: choose a target that takes training."
            )
        elif before is None:
            return float(cost), float(cost)
        else:
            share = (target - before[1]) / (value - before[1])
            return before[0] + share * (cost - before[0]), cost - before[0]
    return None


def plot_speedup(
    found: Exponent, path: str | os.PathLike[str], *, over: str, against: str, to: str
) -> Path:
    """Costs by size on logarithmic axes, with the fit and a linear speed-up."""
    check_format(path)
    figure = new_figure(5.6, 4.2)
    axes, sizes = figure.add_subplot(), np.array(found.sizes)
    middle = np.exp(np.log(found.costs).mean()), np.exp(np.log(sizes).mean())
    axes.loglog(sizes, found.costs, "o", color=line_style(0)["color"])
    for label, power, look in ((f"exponent {found}", found.value, "-"), ("linear: -1", -1.0, ":")):
        axes.loglog(sizes, middle[0] * (sizes / middle[1]) ** power, look, label=label)
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.set_yticks(found.costs, [f"{cost:,.3g}" for cost in found.costs])
    axes.minorticks_off()
    style(axes, title=f"{against} to {to}", x=over, y=against)
    axes.legend(frameon=False)
    return save(figure, path)
