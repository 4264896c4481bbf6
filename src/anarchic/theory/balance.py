"""How evenly the workers arrive, and whether that changes with time."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from anarchic.participation.timetable import Timetable
from anarchic.theory.observed import full_rounds

SURPRISING = 3.0  # standard deviations
EXPECTED = 5  # mean updates per worker and window; the test needs this many

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Balance:
    """How evenly the workers arrive, in the whole run and in windows of it.

    Shares are of all updates; ``skew`` is sum_i |share_i - 1/M|. ``surprise`` is the distance of
    the counts from those of equally likely workers, by the chi-squared test, in standard deviations
    of the normal distribution (Wilson and Hilferty's approximation). ``shift`` is that of windows
    of the run from the shares of the run, by the same test. Rounds in which no worker arrives twice
    are more even than chance, so both err on the low side.
    """

    share_min: float
    share_max: float
    silent: int
    skew: float
    surprise: float
    shift: float

    @property
    def biased(self) -> bool:
        """Whether equally likely workers look like this at most once in about a thousand runs."""
        return self.surprise > SURPRISING

    @property
    def shifting(self) -> bool:
        """Whether the shares change with time, as with workers that are active at certain hours."""
        return self.shift > SURPRISING

    @property
    def even(self) -> bool:
        """Whether every worker looks equally likely at any time, as Theorem 3 assumes."""
        return not (self.biased or self.shifting)


def balance_of(table: Timetable) -> Balance:
    """How evenly the updates of a run are spread over the workers."""
    windows = _windows(full_rounds(table))
    counts = windows.sum(axis=0)
    shares = counts / counts.sum()
    return Balance(
        float(shares.min()),
        float(shares.max()),
        int(np.sum(counts == 0)),
        float(np.abs(shares - 1 / table.workers).sum()),
        _surprise(counts[None], np.full(table.workers, 1 / table.workers), table.workers - 1),
        _surprise(windows, shares, (len(windows) - 1) * (int(np.count_nonzero(counts)) - 1)),
    )


def _windows(table: Timetable) -> Counts:
    """Updates of each worker in stretches of whole rounds, the last the longest: (windows, M)."""
    length = -(-EXPECTED * table.workers // table.m)
    many = max(table.rounds // length, 1)
    window = np.minimum(np.arange(len(table)) // (length * table.m), many - 1)
    cells = np.bincount(window * table.workers + table.worker, minlength=many * table.workers)
    return cells.reshape(many, table.workers)


def _surprise(counts: Counts, shares: NDArray[np.float64], degrees: int) -> float:
    """How far ``counts`` (windows, M) are from ``shares`` of each window's sum."""
    if degrees == 0:
        return 0.0
    seen = shares > 0
    expected = counts.sum(axis=1, keepdims=True) * shares[seen]
    statistic = float(((counts[:, seen] - expected) ** 2 / expected).sum())
    spread = 2 / (9 * degrees)
    return float(((statistic / degrees) ** (1 / 3) - (1 - spread)) / sqrt(spread))
