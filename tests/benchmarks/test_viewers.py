"""What is made of the turns with viewers and without."""

from __future__ import annotations

import pytest
from benchmarks.record import Record
from benchmarks.viewers import VIEWERS, Turn, judge


def judged(alone: list[Turn], seen: list[Turn]) -> tuple[Record, dict[str, float | None]]:
    record = Record("viewers", "a title")
    judge(record, alone, seen)
    return record, {bound.name: bound.value for bound in record.bounds}


def test_the_ratio_is_of_turns_beside_each_other() -> None:
    alone = [Turn(1000.0, 1.0, 0.0), Turn(500.0, 1.0, 0.0)]
    seen = [Turn(980.0, 1.0, 9.0), Turn(490.0, 1.0, 9.0)]
    record, found = judged(alone, seen)
    assert found["updates per second with 50 viewers / without"] == pytest.approx(0.98)
    assert record.met


def test_cpu_per_viewer_is_what_is_left_beside_the_updates() -> None:
    # At 800 instead of 1000 updates per second the updates cost 0.8 of 1 s; 0.9 s were used.
    record, found = judged([Turn(1000.0, 1.0, 0.0)], [Turn(800.0, 0.9, 9.0)])
    assert found["CPU per viewer, % of a core"] == pytest.approx(100 * 0.1 / VIEWERS)
    assert not record.met  # a fifth fewer updates
