"""Curves of cells: the mean over the seeds, with a band from the lowest to the highest.

The last ten evaluations are of consecutive rounds; where they all lie within a step of the curve
before them, they stand as one point, their mean, which is also the number of a table. Runs that
diverged are no part of the mean, unless all did: each has a thin line of its own, up to a cross.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from anarchic.report.figure import line_style, new_figure, style
from anarchic.study.findings import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAST = 10  # evaluations, of consecutive rounds
END = "The last point is the mean of the last ten rounds"  # for captions
LETTERS_PER_INCH = 14  # of a legend

Labelled = Iterable[tuple[str, Outcome]]


def draw_panels(panels: Mapping[str, Labelled]) -> Figure:
    """Accuracy by round, one panel per title, two panels per row, one legend below them."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(5.2 * columns, 3.4 * rows)
    for place, (title, outcomes) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        draw_curves(axes, outcomes)
        style(axes, title=title, x="round", y="test accuracy")
    legend_below(figure)
    return figure


def legend_below(figure: Figure, title: str | None = None) -> None:
    """One legend for all panels, where it hides nothing: in a row if it fits, or in two columns."""
    found = [axes.get_legend_handles_labels() for axes in figure.axes]
    known = {label: one for pair in found for one, label in zip(*pair, strict=True)}
    if known:
        letters = sum(len(label) + 8 for label in known)  # with the line before it
        fits = letters < LETTERS_PER_INCH * figure.get_figwidth()
        figure.legend(
            list(known.values()),
            list(known),
            title=title,
            loc="outside lower center",
            ncols=len(known) if fits else 2,
            frameon=False,
            fontsize=9,
            title_fontsize=9,
        )


def draw_curves(axes: Axes, outcomes: Labelled) -> None:
    """One labelled curve per cell: accuracy by round.

    Colours go by position: a cell without results keeps its colour for later. Later curves are
    thinner, so that those beneath them show.
    """
    for index, (label, outcome) in enumerate(outcomes):
        if not outcome.results:
            continue
        look, width = line_style(index), max(1.0, 3.0 - 0.6 * index)
        rounds, values = curves_of(replace(outcome, results=outcome.finished or outcome.results))
        axes.plot(rounds, values.mean(axis=0), label=label, linewidth=width, **look)
        if len(values) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)
        for result in outcome.diverged:
            rounds, (values,) = curves_of(replace(outcome, results=[result]))
            axes.plot(rounds, values, linewidth=0.8, **look)
            axes.plot(rounds[-1:], values[-1:], marker="x", color=look["color"])


def curves_of(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Rounds that all seeds reach, and the accuracies there, interpolated: (seeds, rounds)."""
    columns = [zip(r.curve["round"], r.curve["accuracy"], strict=True) for r in outcome.results]
    curves = [_settled(np.array([(x, y) for x, y in p if y is not None])) for p in columns]
    rounds = min(curves, key=lambda curve: curve[-1, 0])[:, 0]
    return rounds, np.array([np.interp(rounds, curve[:, 0], curve[:, 1]) for curve in curves])


def _settled(curve: np.ndarray) -> np.ndarray:
    """(points, 2): with the last ten as one where they take no more than a step of those before."""
    before, last = curve[:-LAST, 0], curve[-LAST:, 0]
    if len(before) < 2 or last[-1] - last[0] > before[-1] - before[-2]:
        return curve
    return np.vstack([curve[:-LAST], curve[-LAST:].mean(axis=0)])
