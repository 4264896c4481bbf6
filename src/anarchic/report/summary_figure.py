"""A report as a picture: the curves of runs, and the anarchy of the first of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anarchic.report.curves import Curve, draw, label
from anarchic.report.figure import COLOURS, check_format, new_figure, save, style
from anarchic.report.page_file import data_of
from anarchic.report.runs import read_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATE = ("#2f6fb4", "#5f9fc9", "#d9a92e", "#d9711f", "#a82a1a")  # staleness 0, 1, 2-3, 4-7, 8...
LISTED = 20  # workers


def plot_report(places: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> Path:
    """Draw curves, who took part when, staleness, local steps, norms and influence."""
    check_format(path)
    data, runs = data_of(places), read_runs(places)
    first: Mapping[str, Any] = data["runs"][0]["picture"]
    figure = new_figure(11.7, 8.3)  # A4 on its side
    grid = figure.add_gridspec(3, 6)
    metrics = first["curves"]["metrics"][:2] or ["accuracy"]
    for place, metric in enumerate(metrics):
        axes = figure.add_subplot(grid[0, 3 * place : 3 * place + 3])
        draw(axes, [Curve(label(run), run.metrics) for run in runs], metric=metric)
        style(axes, title=metric, x="version", y="")
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize=8)
    strip(figure.add_subplot(grid[1, :4]), first["workers"])
    _influence(figure.add_subplot(grid[1, 4:]), first["everyone"]["influence"])
    found = first["histograms"]
    _bars(figure.add_subplot(grid[2, :2]), found["staleness"], "Staleness (versions)", COLOURS[0])
    _bars(figure.add_subplot(grid[2, 2:4]), found["steps"], "Local steps", COLOURS[2])
    _norms(figure.add_subplot(grid[2, 4:]), found["norms"])
    head = first["head"]
    figure.suptitle(
        f"{head['name'] or head['run']}: {head['rule']}, m = {head['m']}, version "
        f"{head['version']:,}, {(head['updates'] or {}).get('folded', 0):,} updates"
    )
    return save(figure, path)


def strip(axes: Axes, workers: Mapping[str, Any]) -> None:
    """Rows of marks, one per worker, coloured by staleness."""
    rows = workers["rows"][:LISTED]
    for place, row in enumerate(rows):
        marks = [mark for mark in row["pushed"] if mark[2] is not None]
        colours = [LATE[_class(mark[2])] for mark in marks]
        begun = [mark[1] if mark[0] is None else mark[0] for mark in marks]
        ended = [mark[1] for mark in marks]
        where = [place] * len(marks)
        axes.hlines(where, begun, ended, colors=colours, alpha=0.4, linewidth=3)
        axes.scatter(ended, where, c=colours, s=14, marker="|")
    axes.set_yticks(range(len(rows)), [row["worker"] for row in rows], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(*workers["span"])
    axis = "version" if workers.get("axis") == "version" else "time"
    axes.ticklabel_format(axis="x", useOffset=False)
    style(axes, title="Who took part when; colour: staleness", x=axis, y="")


def _class(staleness: int) -> int:
    """0, 1, 2-3, 4-7, 8 and more, as on the page."""
    return min(4, int(staleness).bit_length()) if staleness else 0


def _influence(axes: Axes, found: Mapping[str, Any]) -> None:
    axes.plot([0, 1], [0, 1], color="0.5", linestyle=":")
    axes.plot([x for x, _ in found["lorenz"]], [y for _, y in found["lorenz"]], color=COLOURS[0])
    gini = found["gini"]
    title = "Influence" if gini is None else f"Influence: Gini index {gini:.2f}"
    style(axes, title=title, x="share of workers", y="share of influence")


def _bars(axes: Axes, bins: Sequence[tuple[str, int]], title: str, colour: str) -> None:
    axes.bar([name for name, _ in bins], [count for _, count in bins], color=colour)
    axes.tick_params(axis="x", labelrotation=0 if len(bins) <= 8 else 50, labelsize=8)
    style(axes, title=title, x="", y="updates")


def _norms(axes: Axes, found: Mapping[str, Any] | None) -> None:
    if found is None:
        axes.text(0.5, 0.5, "Norms were not recorded.", ha="center", va="center", color="0.4")
        axes.set_axis_off()
        return
    low, high = found["edges"][:-1], found["edges"][1:]
    far = [COLOURS[1] if edge >= found["limit"] else COLOURS[0] for edge in low]
    widths = [b - a for a, b in zip(low, high, strict=True)]
    axes.bar(low, found["counts"], widths, align="edge", color=far)
    axes.set_xscale("log")
    style(axes, title=f"Norms: {found['outliers']} outliers", x="", y="updates")
