from __future__ import annotations

import pytest
from benchmarks.record import Record
from benchmarks.timetable import Made, keep


@pytest.mark.parametrize(
    ("second", "missed"),
    [
        ((29.0, 1.0, "a"), []),
        ((31.0, 1.0, "a"), ["seconds"]),
        ((2.0, 4.5, "b"), ["peak, GiB", "different digests"]),
    ],
)
def test_both_runs_of_a_case_must_be_quick_small_and_alike(second: Made, missed: list[str]) -> None:
    record = Record("timetable", "T", machine={"name": "here", "load": 0.0}, versions={})
    keep(record, "sampler", [(1.0, 1.0, "a"), second])
    assert [b.name for b in record.bounds if not b.met] == [f"sampler: {name}" for name in missed]
