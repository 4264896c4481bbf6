"""Tables and pictures of what was measured in a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from math import isnan
from pathlib import Path

import numpy as np

from anarchic.report.figure import check_format, line_style, new_figure, save, style
from anarchic.report.runs import write_rows
from anarchic.theory import Measured, Weights

PARTS = ("noise", "drift", "delay", "heterogeneity")


def write_measured(rows: Sequence[Measured], path: str | os.PathLike[str]) -> Path:
    """One line per version that was measured."""
    lines = [
        {name: None if value is None or isnan(value) else value for name, value in line.items()}
        for line in map(asdict, rows)
    ]
    return write_rows(lines, path)


def write_weights(weights: Weights, path: str | os.PathLike[str]) -> Path:
    """One line per worker."""
    pairs = zip(weights.by_worker.tolist(), weights.shares.tolist(), strict=True)
    lines = [{"worker": w, "weight": weight, "share": s} for w, (weight, s) in enumerate(pairs)]
    return write_rows(lines, path)


def plot_measured(
    rows: Sequence[Measured], weights: Weights | None, path: str | os.PathLike[str]
) -> Path:
    """The gradient and what updates depart from it by, ages, and the weights of the workers."""
    check_format(path)
    panels = 2 if weights is None else 3
    figure, rounds = new_figure(4.6 * panels, 4.0), [row.round for row in rows]
    first = figure.add_subplot(1, panels, 1)
    for index, name in enumerate(("squared_gradient", *PARTS)):
        values = [getattr(row, name) for row in rows]
        shown = [value if value > 0 else np.nan for value in values]
        label = "|grad f|^2" if index == 0 else name
        first.semilogy(rounds, shown, label=label, **line_style(index))
    style(first, title="Squared norms", x="version", y="")
    first.legend(frameon=False, fontsize=9)
    second = figure.add_subplot(1, panels, 2)
    ages = {"row_age_mean": "mean age of rows", "row_age_max": "oldest row"}
    ages |= {"staleness_mean": "mean staleness", "staleness_max": "largest staleness"}
    for index, (name, label) in enumerate(ages.items()):
        second.plot(rounds, [getattr(r, name) for r in rows], label=label, **line_style(index))
    style(second, title="Age", x="version", y="versions")
    second.legend(frameon=False, fontsize=9)
    if weights is not None:
        third = figure.add_subplot(1, panels, 3)
        shares = np.sort(weights.shares)[::-1]
        third.bar(np.arange(len(shares)), 100 * shares, color=line_style(0)["color"])
        third.axhline(100 / len(shares), color="0.45", linewidth=1, linestyle=":")
        title = f"Weight of each worker, Gini index {weights.gini:.2f}"
        style(third, title=title, x="worker, by weight", y="%")
    return save(figure, path)
