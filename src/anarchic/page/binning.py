"""Counts of values, in at most a few dozen bins."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_SINGLE_VALUES = 12
LOG_BINS = 24

Bins = list[tuple[str, int]]
"""Label of a value or a range of values, and its count."""


def bins(values: NDArray[np.integer[Any]]) -> Bins:
    """Counts of single values if they are few, else of the ranges 0, 1, 2-3, 4-7, 8-15, ...

    >>> bins(np.array([1, 1, 3]))
    [('1', 2), ('2', 0), ('3', 1)]
    """
    first, last = int(values.min()), int(values.max())
    if last - first < MOST_SINGLE_VALUES:
        counts = np.bincount(values - first)
        return [(str(first + place), int(count)) for place, count in enumerate(counts)]
    edges = [0, *(2**power for power in range(last.bit_length() + 1))]
    ranges = [(low, high) for low, high in pairwise(edges) if high > first and low <= last]
    counts, _ = np.histogram(values, [low for low, _ in ranges] + [ranges[-1][1]])
    return [
        (str(low) if high == low + 1 else f"{low}-{high - 1}", int(count))
        for (low, high), count in zip(ranges, counts, strict=True)
    ]


def log_bins(values: NDArray[np.float64]) -> tuple[list[float], list[int]]:
    """Edges and counts of bins of equal ratio; values of 0 and below are in the first."""
    positive = values[values > 0]
    if not len(positive):
        return [0.0, 1.0], [len(values)]
    low, high = np.log10(positive.min()), np.log10(positive.max())
    if high - low < 1e-9:
        low, high = low - 0.05, high + 0.05
    edges = 10 ** np.linspace(low, high, LOG_BINS + 1)
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return [float(f"{edge:.4g}") for edge in edges], counts.tolist()
