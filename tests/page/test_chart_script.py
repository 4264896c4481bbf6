"""The marks on the axes of the page's charts."""

from __future__ import annotations

import pytest

from tests.page.javascript import STATIC, node

TICKS = """async (load, given) => {
  const { ticks } = await load("chart.js");
  return given.map((each) => ticks(...each));
}"""


@pytest.fixture
def ticks(tmp_path):
    run = node(tmp_path, STATIC)
    return lambda *given: run(TICKS, given)


def test_every_axis_has_at_least_two_marks_and_not_too_many(ticks):
    ranges = [(low / 7, low / 7 + width / 40, 4) for low in range(-9, 9) for width in range(1, 90)]
    counts = [len(found) for found in ticks(*ranges)]
    assert (min(counts), max(counts)) == (2, 6)
    assert ticks((0.6, 1.45, 4)) == [[0.6, 0.8, 1, 1.2, 1.4]]


def test_versions_are_whole(ticks):
    assert ticks((0, 2, 6, 1), (0, 97, 6, 1)) == [[0, 1, 2], [0, 20, 40, 60, 80]]
