"""How a data set is partitioned: samples per worker and class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anarchic.errors import ConfigError
from anarchic.report.figure import check_format, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SEPARATE_BARS = 30
_MOST_NAMED_CLASSES = 20


def partition_table(
    parts: Sequence[NDArray[np.int64]], y: ArrayLike, classes: int
) -> NDArray[np.int64]:
    """Number of samples by worker and class, (workers, classes)."""
    labels = np.asarray(y)
    if labels.max(initial=0) >= classes:
        raise ConfigError(
            f"The labels go up to {labels.max()}, got classes={classes}. Give the number of "
            "classes of the data set."
        )
    counts = [np.bincount(labels[part], minlength=classes) for part in parts]
    return np.array(counts, np.int64).reshape(len(counts), classes)


def plot_partition(
    parts: Sequence[NDArray[np.int64]],
    y: ArrayLike,
    classes: int,
    path: str | os.PathLike[str],
) -> Path:
    """Draw one stacked bar per worker, save the picture at ``path`` and return the path.

    The ending of ``path`` chooses the format (.png, .svg, .pdf).
    """
    check_format(path)
    table = partition_table(parts, y, classes)
    width = min(max(6.0, 2.5 + 0.3 * len(table)), 16.0)  # inches; room for 10 and for 143 workers
    figure = new_figure(width, 4.5)
    _draw(figure.add_subplot(), table)
    return save(figure, path)


def _draw(axes: Axes, table: NDArray[np.int64]) -> None:
    from matplotlib import colormaps

    workers, classes = table.shape
    palette = colormaps["tab10" if classes <= 10 else "tab20" if classes <= 20 else "turbo"]
    edges = np.arange(workers + 1) - 0.5
    tops = np.cumsum(table, axis=1)
    for label in range(classes):
        colour = palette(label if classes <= _MOST_NAMED_CLASSES else label / (classes - 1))
        # One outline per class: thousands of single bars would take many seconds to draw.
        axes.stairs(
            tops[:, label],
            edges,
            baseline=tops[:, label] - table[:, label],
            fill=True,
            color=colour,
            label=str(label),
        )
    highest = 1.05 * max(1, tops.max(initial=0))
    axes.set_title("Samples per worker and class", loc="left", fontsize=11)
    axes.set(xlabel="worker", ylabel="training samples", xlim=(-0.6, workers - 0.4))
    axes.set_ylim(0, highest)
    if workers <= _MOST_SEPARATE_BARS:
        axes.set_xticks(np.arange(workers))
        axes.vlines(edges, 0, highest, color="white", linewidth=3)
    axes.spines[["top", "right"]].set_visible(False)
    _explain_colours(axes, classes)


def _explain_colours(axes: Axes, classes: int) -> None:
    """A legend for a few classes, a colour scale for many."""
    if classes <= _MOST_NAMED_CLASSES:
        columns = 1 if classes <= 10 else 2
        axes.legend(
            title="class", ncols=columns, reverse=True, loc="center left", bbox_to_anchor=(1, 0.5)
        )
        return
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(0, classes - 1), "turbo")
    axes.figure.colorbar(scale, ax=axes, label="class")
