import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Exponential,
    Sampler,
    Timetable,
    Work,
    make_timetable,
)
from anarchic.report.timetable_summary import bins, plot_timetable, summarise


def ints(*values):
    return np.array(values, np.int32)


TABLE = Timetable(
    workers=3,
    m=2,
    worker=ints(0, 1, 0, 0),
    visit=ints(0, 0, 1, 2),
    base_version=ints(0, 0, 0, 1),
    local_steps=ints(5, 1, 5, 5),
    pull_s=np.array([0.0, 0.0, 1.0, 3.0]),
    push_s=np.array([1.0, 2.0, 3.0, 8.0]),
)


def test_statistics_that_can_be_counted_by_hand():
    found = summarise(TABLE)
    assert (found.rounds, found.updates, found.virtual_s, found.round_s) == (2, 4, 8.0, 4.0)
    assert (found.staleness_mean, found.staleness_max) == (0.25, 1)  # 0, 0, 1, 0
    assert found.staleness == [("0", 3), ("1", 1)]
    assert (found.steps_mean, found.steps[0], found.steps[-1]) == (4.0, ("1", 1), ("5", 3))
    assert (found.share_min, found.share_max, found.silent) == (0.0, 0.75, 1)


def test_many_values_are_counted_in_doubling_ranges():
    found = bins(np.arange(21))
    assert found == [("0", 1), ("1", 1), ("2-3", 2), ("4-7", 4), ("8-15", 8), ("16-31", 5)]
    assert bins(np.arange(5, 40))[0] == ("4-7", 3)


def test_a_table_without_a_clock_has_no_virtual_time():
    found = summarise(Sampler(4, 2, ConstantSteps(3)).timetable(0, 5))
    assert (found.virtual_s, found.round_s) == (None, None)


def test_an_empty_table_is_refused():
    with pytest.raises(ConfigError, match="empty"):
        summarise(Sampler(4, 2, ConstantSteps(3)).timetable(0, 0))


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(2), step_s=1.0))
    table = make_timetable(process, workers=200, m=2, rounds=100, rng=0)
    assert plot_timetable(table, tmp_path / "a.png").exists()
