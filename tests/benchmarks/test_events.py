from __future__ import annotations

import numpy as np
import pytest
from benchmarks.events import BLOCK, Directions, Result, keep, run
from benchmarks.record import Record
from benchmarks.timetable import exponential_blocks


def test_all_updates_are_folded() -> None:
    found = run(500, 9_000)  # two blocks and a bit, 90 versions
    assert found.updates == 9_000
    assert found.mean_staleness > 0
    assert found.peak_mib > 1
    assert min(found.seconds.values()) > 0


def test_every_block_has_directions_of_its_own() -> None:
    make = Directions()
    first, second = (
        make.updates(table).directions.copy() for table in exponential_blocks(500, 80, BLOCK)
    )
    assert len(first) == BLOCK
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(("peak_mib", "met"), [(310.0, True), (529.0, False)])
def test_memory_that_grows_with_updates_is_out_of_bounds(peak_mib: float, met: bool) -> None:
    record = Record("w5", "W5", machine={"name": "here", "load": 0.0}, versions={})
    seconds = {"timetable": 4.0, "aggregator": 8.0}
    keep(
        record,
        [
            Result(1_000_000, 2_500_000, 228.0, {"timetable": 1.0, "aggregator": 2.0}, 300.0),
            Result(1_000_000, 10_000_000, 228.0, seconds, peak_mib),
            Result(1_000_000, 10_000_000, 228.0, seconds, 300.0),
        ],
    )
    assert record.met is met
    assert record.bounds[-1].value == peak_mib - 300.0
    rate = record.measures[0]
    assert (rate.median, rate.repeats) == (10_000_000 / 12.0, 2)
