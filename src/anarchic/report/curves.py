"""Plots of accuracy, or another metric, against rounds and against virtual time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anarchic.report.figure import check_format, line_style, new_figure, save, style
from anarchic.report.runs import RecordedRun, first_at
from anarchic.sim.record import MetricsRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIME = "virtual time (s)"


@dataclass(frozen=True)
class Curve:
    """One line of a plot: its name and the metrics of the run."""

    label: str
    metrics: Sequence[MetricsRow]


def plot_runs(
    runs: Sequence[RecordedRun], path: str | os.PathLike[str], metric: str = "accuracy"
) -> Path:
    """A metric against rounds, and beside it against virtual time where runs have a clock."""
    check_format(path)
    panels = 2 if any(run.has_clock for run in runs) else 1
    figure = new_figure(5.4 * panels + 0.6, 4.2)
    left = figure.add_subplot(1, panels, 1)
    curves = [Curve(label(run), run.metrics) for run in runs]
    said = "test accuracy" if metric == "accuracy" else metric
    name = metric[:1].upper() + metric[1:]
    draw(left, curves, metric=metric)
    style(left, title=f"{name} by round", x="round", y=said)
    if panels == 2:
        right = figure.add_subplot(1, panels, 2, sharey=left)
        # A run without a clock has no line, but its colour is kept.
        draw(right, curves, against="virtual_s", metric=metric)
        style(right, title=f"{name} by virtual time", x=_TIME, y="")
    legend(left, len(runs))
    return save(figure, path)


def plot_race(
    curves: Sequence[Curve], path: str | os.PathLike[str], *, target: float, title: str
) -> Path:
    """Accuracy against virtual time, with a mark where each run first reaches ``target``."""
    check_format(path)
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    draw(axes, curves, against="virtual_s", stairs=True)
    axes.axhline(target, color="0.45", linewidth=1, linestyle=":")
    axes.annotate(
        f"target {100 * target:.0f} %",
        (1, target),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        color="0.35",
        fontsize=9,
    )
    for index, curve in enumerate(curves):
        _mark(axes, curve, target, line_style(index)["color"])
    axes.set_xlim(left=0, right=_common_end(curves))
    style(axes, title=title, x=_TIME, y="test accuracy")
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.35), frameon=False)
    return save(figure, path)


def draw(
    axes: Axes,
    curves: Sequence[Curve],
    against: str = "round",
    *,
    stairs: bool = False,
    metric: str = "accuracy",
) -> None:
    """One line per curve; with ``stairs`` a value holds until the next evaluation."""
    for index, curve in enumerate(curves):
        found = ((row.get(against), row.get(metric)) for row in curve.metrics)
        points = [(float(x), float(y)) for x, y in found if x is not None and y is not None]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=curve.label if points else "_",  # no entry of a legend without a line
            linewidth=1.8,
            marker="o" if len(points) == 1 else None,  # a single evaluation is a point
            drawstyle="steps-post" if stairs else "default",
            **line_style(index),
        )


def _mark(axes: Axes, curve: Curve, target: float, colour: str) -> None:
    row = first_at(curve.metrics, target) or {}
    time_s, accuracy = row.get("virtual_s"), row.get("accuracy")
    if time_s is not None and accuracy is not None:
        axes.plot([time_s], [accuracy], "o", color=colour, markersize=7, zorder=3)


def _common_end(curves: Sequence[Curve]) -> float | None:
    """The end of the shortest curve: beyond it there is nothing to compare."""
    ends = [curve.metrics[-1].get("virtual_s") for curve in curves if curve.metrics]
    return min((end for end in ends if end is not None), default=None)


def label(run: RecordedRun) -> str:
    rule = str(run.settings.get("rule", "?"))
    label = run.name if rule in run.name else f"{run.name} ({rule})"
    return label if run.summary is not None else f"{label}, not finished"


def legend(axes: Axes, lines: int) -> None:
    """Inside for a few runs, below the plots for many."""
    if lines <= 6:
        axes.legend(loc="lower right", frameon=False, fontsize=9)
    else:
        axes.figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
