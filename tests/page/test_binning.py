from __future__ import annotations

import numpy as np

from anarchic.page.binning import LOG_BINS, bins, log_bins


def test_few_values_are_counted_one_by_one():
    assert bins(np.array([3, 3, 5])) == [("3", 2), ("4", 0), ("5", 1)]


def test_many_values_are_counted_in_doubling_ranges():
    found = bins(np.arange(21))
    assert found == [("0", 1), ("1", 1), ("2-3", 2), ("4-7", 4), ("8-15", 8), ("16-31", 5)]


def test_the_number_of_bins_does_not_grow_with_the_values():
    huge = bins(np.array([1, 1 << 40]))  # a worker may claim as many local steps as it likes
    assert len(huge) < 50
    assert sum(count for _, count in huge) == 2


def test_norms_are_counted_by_their_ratio():
    edges, counts = log_bins(np.array([0.01, 0.1, 1.0, 1.0]))
    assert len(edges) == LOG_BINS + 1
    assert (counts[0], counts[LOG_BINS // 2], counts[-1]) == (1, 1, 2)
    assert sum(counts) == 4


def test_norms_of_zero_and_equal_norms_are_counted_too():
    assert sum(log_bins(np.array([0.0, 2.0, 2.0]))[1]) == 3
    assert sum(log_bins(np.zeros(3))[1]) == 3
