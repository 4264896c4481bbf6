"""Mean curves of groups with a band over the seeds, and mean and band of single numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from anarchic.core.types import Floats
from anarchic.core.validation import check_choice
from anarchic.errors import RunError
from anarchic.report.figure import check_format, line_style, new_figure, save, style
from anarchic.stats import interval
from anarchic.study.groups import Asked, Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Band = Literal["sd", "se", "ci", "range", "none"]
BANDS: tuple[str, ...] = get_args(Band)
AXES = {
    "round": "round",
    "virtual_s": "virtual time (s)",
    "updates": "updates",
    "bytes": "bytes, up and down",
}


def spread(values: Sequence[float] | Floats, band: Band) -> tuple[float, float]:
    """How far the band reaches below and above the mean of values; 0 for a single one.

    ``sd`` is one standard deviation, ``se`` one of the mean, ``ci`` the 95 % interval of the mean
    by Student's t, ``range`` from the lowest to the highest.
    """
    check_choice("band", band, BANDS)
    found = np.asarray(values, np.float64)
    mean = float(found.mean())
    if len(found) < 2 or band == "none":
        return 0.0, 0.0
    if band == "range":
        return mean - float(found.min()), float(found.max()) - mean
    if band == "ci":
        whole = interval(found, method="t")
        return mean - whole.low, whole.high - mean
    deviation = float(found.std(ddof=1))
    half = deviation / np.sqrt(len(found)) if band == "se" else deviation
    return float(half), float(half)


def curves_of(group: Group, asked: Asked) -> tuple[Floats, Floats]:
    """Where all finished runs of a group are known, and their values there: (runs, points)."""
    curves = [points for run in group.finished if len(points := asked.points(run))]
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    first = max(points[0, 0] for points in curves)
    last = min(points[-1, 0] for points in curves)
    every = np.unique(np.concatenate([points[:, 0] for points in curves]))
    if len({points[:, 0].tobytes() for points in curves}) > 1:  # times differ from seed to seed
        every = np.linspace(first, last, max(map(len, curves)))
    x = every[(every >= first) & (every <= last)]
    return x, np.array([np.interp(x, points[:, 0], points[:, 1]) for points in curves])


def plot_groups(
    groups: Sequence[Group], path: str | os.PathLike[str], asked: Asked, band: Band = "sd"
) -> Path:
    """One mean curve per group with its band; a file of ``.pdf``, ``.svg`` or ``.png``."""
    check_format(path)
    check_choice("band", band, BANDS)
    figure = new_figure(5.2, 3.6)
    axes = figure.add_subplot()
    for index, group in enumerate(groups):
        _draw(axes, group, asked, band, index)
    if not axes.lines:
        raise RunError(f"No run has {asked.metric} against {asked.against}: choose another axis.")
    said = "test accuracy" if asked.metric == "accuracy" else asked.metric
    style(axes, title="", x=AXES[asked.against], y=said)
    if len(groups) > 1:
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return save(figure, path)


def _draw(axes: Axes, group: Group, asked: Asked, band: Band, index: int) -> None:
    x, values = curves_of(group, asked)
    if not len(x):
        return
    look = line_style(index)
    label = group.label + (f" ({group.chosen})" if group.chosen else "")
    mean = values.mean(axis=0)
    axes.plot(x, mean, label=label, linewidth=1.6, **look)
    if len(values) > 1 and band != "none":
        below, above = np.array([spread(column, band) for column in values.T]).T
        axes.fill_between(
            x, mean - below, mean + above, color=look["color"], alpha=0.18, linewidth=0
        )
