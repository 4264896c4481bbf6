"""Counts of values by size: cheap enough to be kept of every update."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf, isfinite
from typing import final

STALENESS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # versions
NORM = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4)
LOCAL_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


@final
class Histogram:
    """How many values were at most each of ``bounds``, which rise, and how many were larger.

    One thread adds values. Any thread may read.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last is of those above all bounds
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        if isfinite(value):  # or the sum would stay infinite for ever
            self.total += value

    def cumulative(self) -> list[tuple[float, int]]:
        """(bound, number of values that are at most as large); the last bound is infinity."""
        found, count = [], 0
        for bound, within in zip((*self.bounds, inf), self.counts.copy(), strict=True):
            count += within
            found.append((float(bound), count))
        return found
