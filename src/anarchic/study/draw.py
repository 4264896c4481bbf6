"""Curves of cells: the mean over the seeds, with a band from the lowest to the highest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from anarchic.report.figure import line_style
from anarchic.study.findings import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_lines(
    axes: Axes, lines: Iterable[tuple[str, Line]], *, x: str = "round", y: str = "accuracy"
) -> None:
    """One labelled curve a cell, of the columns ``x`` and ``y`` of its results' curves.

    Colours go by place: a cell without results keeps its own for when it has some. Later lines are
    thinner, so that those beneath them show.
    """
    for index, (label, line) in enumerate(lines):
        if line.results:
            places, values = mean_curve(line, x=x, y=y)
            style, width = line_style(index), max(1.0, 3.0 - 0.6 * index)
            axes.plot(places, values.mean(axis=0), label=label, linewidth=width, **style)
            if len(values) > 1:
                low, high = values.min(axis=0), values.max(axis=0)
                axes.fill_between(places, low, high, color=style["color"], alpha=0.15, linewidth=0)


def mean_curve(
    line: Line, *, x: str = "round", y: str = "accuracy"
) -> tuple[np.ndarray, np.ndarray]:
    """Places on the x axis that all seeds reach, and the values there: (seeds, places).

    Seeds whose curves have other places, as in continuous time, are interpolated.
    """
    curves = [
        np.array([(a, b) for a, b in zip(r.curve[x], r.curve[y], strict=True) if b is not None])
        for r in line.results
    ]
    shortest = min(curves, key=lambda curve: curve[-1, 0])
    places = shortest[:, 0]
    return places, np.array([np.interp(places, curve[:, 0], curve[:, 1]) for curve in curves])
