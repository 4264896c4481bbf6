"""A report as a picture: the curves of runs, and the anarchy of the first of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anarchic.page.picture import metrics_first
from anarchic.report.curves import Curve, draw, label
from anarchic.report.figure import COLOURS, check_format, new_figure, save, style
from anarchic.report.page_file import data_of
from anarchic.report.runs import RecordedRun, read_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LATE = ("#2f6fb4", "#5f9fc9", "#d9a92e", "#d9711f", "#a82a1a")  # staleness 0, 1, 2-3, 4-7, 8...
LISTED = 20  # workers
UNITS = (("days", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
NORM_TICKS = 4


def plot_report(places: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> Path:
    """Draw curves, who took part when, staleness, local steps, norms and influence."""
    check_format(path)
    return save(drawn(places), path)


def drawn(places: Sequence[str | os.PathLike[str]]) -> Figure:
    """The figure of a report."""
    data, runs = data_of(places), read_runs(places)
    first: Mapping[str, Any] = data["runs"][0]["picture"]
    figure = new_figure(11.7, 8.3)  # A4 on its side
    grid = figure.add_gridspec(3, 6)
    metrics = _measured(runs)[:2]
    for place, metric in enumerate(metrics):
        axes = figure.add_subplot(grid[0, 3 * place : 3 * place + 3])
        draw(axes, [Curve(label(run), run.metrics) for run in runs], metric=metric)
        style(axes, title=metric.capitalize(), x="version", y="")
        axes.legend(frameon=False, fontsize=8)
    if not metrics:
        _unevaluated(figure.add_subplot(grid[0, :]), first["pace"]["whole"])
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
    return figure


def _measured(runs: Sequence[RecordedRun]) -> list[str]:
    """The metrics that any of the runs has values of."""
    rows = [row for run in runs for row in run.metrics]
    return metrics_first(n for row in rows for n, value in row.items() if value is not None)


def strip(axes: Axes, workers: Mapping[str, Any]) -> None:
    """Rows of marks, one per worker, coloured by staleness."""
    rows = workers["rows"][:LISTED]
    axis, begun, size = _axis(workers)
    begin, end = ((at - begun) / size for at in workers["span"])
    for place, row in enumerate(rows):
        marks = [mark for mark in row["pushed"] if mark[2] is not None]
        colours = [LATE[_class(mark[2])] for mark in marks]
        pulled = [((mark[1] if mark[0] is None else mark[0]) - begun) / size for mark in marks]
        ended = [(mark[1] - begun) / size for mark in marks]
        where = [place] * len(marks)
        axes.hlines(where, pulled, ended, colors=colours, alpha=0.4, linewidth=3)
        axes.scatter(ended, where, c=colours, s=14, marker="|")
    axes.set_yticks(range(len(rows)), [row["worker"] for row in rows], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(begin, end)
    style(axes, title="Who took part when; colour: staleness", x=axis, y="")


def _axis(workers: Mapping[str, Any]) -> tuple[str, float, float]:
    """The name of a strip's axis; what is taken off its numbers, and by what they are divided."""
    if workers.get("axis") == "version":
        return "version", 0.0, 1.0
    begun = float(workers.get("begun_s", 0.0))
    length_s = workers["span"][1] - begun
    name, size = next((each for each in UNITS if length_s >= 2 * each[1]), UNITS[-1])
    since = "time since the first update" if "begun_s" in workers else "virtual time"
    return f"{since} ({name})", begun, size


def _unevaluated(axes: Axes, pace: Mapping[str, Any] | None) -> None:
    """Where there are no curves: how many updates came, if that is known."""
    if pace is None:
        axes.text(0.5, 0.5, "No version was evaluated.", ha="center", va="center", color="0.4")
        axes.set_axis_off()
        return
    length_s, rates = pace["length_s"], pace["rates"]
    name, size = next((each for each in UNITS if length_s >= 2 * each[1]), UNITS[-1])
    width = length_s / len(rates) / size
    axes.stairs(
        rates, [place * width for place in range(len(rates) + 1)], color=COLOURS[0], fill=True
    )
    title = "Updates per second (no version was evaluated: serve with --evaluate)"
    style(axes, title=title, x=f"time since the first update ({name})", y="")


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
    axes.tick_params(
        axis="x",
        labelrotation=0 if sum(len(name) + 1 for name, _ in bins) < 40 else 50,
        labelsize=8,
    )
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
    if low[0] > 0:
        axes.set_xscale("log")
    shown = found["edges"][:: max(1, len(found["edges"]) // NORM_TICKS)]
    axes.set_xticks(shown, [f"{edge:.3g}" for edge in shown], fontsize=8)
    axes.minorticks_off()
    many = found["outliers"]
    title = f"Norms: {many or 'no'} outlier{'' if many == 1 else 's'}"
    style(axes, title=title, x="", y="updates")
