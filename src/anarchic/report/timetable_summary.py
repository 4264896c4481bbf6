"""Statistics of a timetable: updates per worker, staleness and local steps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anarchic.errors import ConfigError
from anarchic.page.binning import Bins, bins
from anarchic.participation import Timetable
from anarchic.report.figure import COLOURS, check_format, new_figure, save, style


@dataclass(frozen=True)
class TimetableSummary:
    """Statistics of a timetable.

    Symbols: ``workers`` is M, ``m`` is m, ``rounds`` is T, staleness is tau, local steps are K.
    """

    workers: int
    m: int
    rounds: int
    updates: int
    virtual_s: float | None
    staleness_mean: float
    staleness_max: int
    staleness: Bins
    steps_mean: float
    steps: Bins
    share_min: float  # share of the updates, of the worker that sent fewest
    share_max: float
    silent: int  # workers that sent nothing

    @property
    def round_s(self) -> float | None:
        """Mean virtual time of a round."""
        return None if self.virtual_s is None else self.virtual_s / self.rounds


def summarise(table: Timetable) -> TimetableSummary:
    """The statistics of a timetable of at least one round."""
    if not len(table):
        raise ConfigError("An empty timetable has no statistics: make at least one round.")
    sent = np.bincount(table.worker, minlength=table.workers)
    return TimetableSummary(
        table.workers,
        table.m,
        table.rounds,
        len(table),
        None if table.push_s is None else float(table.push_s[-1]),
        float(table.staleness.mean()),
        int(table.staleness.max()),
        bins(table.staleness),
        float(table.local_steps.mean()),
        bins(table.local_steps),
        float(sent.min() / len(table)),
        float(sent.max() / len(table)),
        int(np.count_nonzero(sent == 0)),
    )


def plot_timetable(table: Timetable, path: str | os.PathLike[str]) -> Path:
    """Draw the staleness of updates, and the number of updates per worker."""
    check_format(path)
    found = summarise(table)
    figure = new_figure(10.5, 4.0)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    labels, counts = zip(*found.staleness, strict=True)
    left.bar(labels, 100 * np.array(counts) / len(table), color=COLOURS[0])
    title = f"Staleness of updates: {found.staleness_mean:.1f} versions on average"
    style(left, title=title, x="staleness (versions)", y="share of updates (%)")
    left.tick_params(axis="x", labelrotation=0 if len(labels) <= 7 else 40)
    sent = np.sort(np.bincount(table.worker, minlength=table.workers))[::-1]
    edges = np.arange(len(sent) + 1)
    right.fill_between(edges, [*sent, sent[-1]], step="post", color=COLOURS[2], alpha=0.8)
    right.axhline(len(table) / table.workers, color="0.35", linestyle=":", label="equal shares")
    right.set(ylim=(0, None), xlim=(0, len(sent)))
    right.locator_params(axis="y", integer=True)  # counts
    style(right, title="Updates per worker", x="workers, busiest first", y="updates")
    right.legend(frameon=False)
    return save(figure, path)
