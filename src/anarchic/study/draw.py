"""Curves of cells: the mean over the seeds, with a band from the lowest to the highest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from anarchic.report.figure import line_style, new_figure, style
from anarchic.study.findings import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Iterable[tuple[str, Line]]  # with their labels


def draw_panels(panels: Mapping[str, Lines]) -> Figure:
    """Accuracy by round, a panel a title, two beside each other; the first has the legend."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(5.2 * columns, 3.4 * rows)
    for place, (title, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        draw_lines(axes, lines)
        style(axes, title=title, x="round", y="test accuracy")
        if axes.lines and place == 1:
            axes.legend(loc="lower right", frameon=False, fontsize=9)
    return figure


def draw_lines(axes: Axes, lines: Lines) -> None:
    """One labelled curve a cell: accuracy by round.

    Colours go by place: a cell without results keeps its own for when it has some. Later lines are
    thinner, so that those beneath them show.
    """
    for index, (label, line) in enumerate(lines):
        if line.results:
            rounds, values = curves_of(line)
            look, width = line_style(index), max(1.0, 3.0 - 0.6 * index)
            axes.plot(rounds, values.mean(axis=0), label=label, linewidth=width, **look)
            if len(values) > 1:
                low, high = values.min(axis=0), values.max(axis=0)
                axes.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)


def curves_of(line: Line) -> tuple[np.ndarray, np.ndarray]:
    """Rounds that all seeds reach, and the accuracies there: (seeds, rounds).

    Seeds that were evaluated in other rounds are interpolated.
    """
    columns = [zip(r.curve["round"], r.curve["accuracy"], strict=True) for r in line.results]
    curves = [np.array([(x, y) for x, y in pairs if y is not None]) for pairs in columns]
    rounds = min(curves, key=lambda curve: curve[-1, 0])[:, 0]
    return rounds, np.array([np.interp(rounds, curve[:, 0], curve[:, 1]) for curve in curves])
