"""Which data sets there are, where their files are, and how one is partitioned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anarchic.core import registry
from anarchic.data import Parts, load, locate
from anarchic.data.dataset import Folder
from anarchic.data.leaf import locate_leaf
from anarchic.data.mirrors import SOURCES
from anarchic.errors import ConfigError, DataError
from anarchic.report.figure import check_format, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAF = ("femnist", "leaf-shakespeare")
_YOURS = {"csv": "a file of yours (path)", "huggingface": "the Hub, or a folder of yours (path)"}
_PLACES = {"digits": "with the package", "synthetic": "made from a seed", **_YOURS}
_MOST_SEPARATE_BARS = 30
_MOST_NAMED_CLASSES = 20


@dataclass(frozen=True)
class DatasetStatus:
    """A data set: where it is and, once loaded, its number of samples or what is wrong with it."""

    name: str
    where: str
    train: int | None = None
    test: int | None = None
    problem: str | None = None


def list_datasets(data_dir: Folder = None, *, check: bool = False) -> Iterator[DatasetStatus]:
    """All data sets, without downloading any; with ``check`` those that are there are loaded."""
    for name in registry.names("datasets"):
        place = _where(name, data_dir)
        if place is None:
            here = "fetched on first use" if name in SOURCES else "LEAF's scripts make its files"
            yield DatasetStatus(name, f"not here; {here}")
        elif check and name not in _YOURS:
            yield _loaded(name, place, data_dir)
        else:
            yield DatasetStatus(name, place)


def _loaded(name: str, place: str, data_dir: Folder) -> DatasetStatus:
    try:
        data = load(name, data_dir)
    except DataError as error:
        return DatasetStatus(name, place, problem=str(error))
    return DatasetStatus(name, place, len(data.y_train), len(data.y_test))


def _where(name: str, data_dir: Folder) -> str | None:
    if name in _PLACES:
        return _PLACES[name]
    if name not in (*SOURCES, *_LEAF):
        return "from another package"
    place = locate_leaf(name, data_dir) if name in _LEAF else locate(name, data_dir)
    return None if place is None else str(place)


def partition_table(parts: Parts, y: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Number of samples by worker and class, (workers, classes)."""
    labels = np.asarray(y)
    if labels.max(initial=0) >= classes:
        raise ConfigError(
            f"The labels go up to {labels.max()}, got classes={classes}. Give the number of "
            "classes of the data set."
        )
    counts = [np.bincount(labels[part], minlength=classes) for part in parts]
    return np.array(counts, np.int64).reshape(len(counts), classes)


def plot_partition(parts: Parts, y: ArrayLike, classes: int, path: str | os.PathLike[str]) -> Path:
    """Draw one stacked bar per worker; the ending of ``path`` chooses .png, .svg or .pdf."""
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
