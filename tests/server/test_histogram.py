"""Counts of values by size, with numbers to be counted by hand."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from anarchic.server import histogram
from anarchic.server.histogram import Histogram


def test_values_are_counted_up_to_each_bound():
    seen = Histogram((1, 2, 5))
    for value in (0, 1, 1.5, 2, 5.1, 1e9):
        seen.add(value)
    assert seen.cumulative() == [(1.0, 2), (2.0, 4), (5.0, 4), (inf, 6)]
    assert seen.total == 0 + 1 + 1.5 + 2 + 5.1 + 1e9


def test_what_is_not_finite_is_counted_and_leaves_the_sum_finite():
    seen = Histogram((1, 2))
    seen.add(inf)
    seen.add(1)
    assert seen.cumulative() == [(1.0, 1), (2.0, 1), (inf, 2)]
    assert seen.total == 1


@pytest.mark.parametrize("name", ["STALENESS", "NORM", "LOCAL_STEPS", "SECONDS"])
def test_bounds_rise(name):
    bounds = getattr(histogram, name)
    assert all(low < high for low, high in pairwise(bounds))
