import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    Availability,
    Change,
    ConstantSteps,
    ContinuousTime,
    Coupling,
    Exponential,
    Work,
    make_timetable,
    present,
)


def there(workers, join=None, leave=None, within=None, seed=0):
    return present(workers, np.random.default_rng(seed), join=join, leave=leave, within=within)


def test_workers_join_and_leave_at_their_time():
    windows = there(10, Change(0.3, 50.0), Change(0.2, 90.0))
    assert sorted(windows.from_s.tolist()) == [0] * 7 + [50] * 3
    assert sorted(windows.until_s.tolist()) == [90] * 2 + [np.inf] * 8
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), availability=windows)
    table = make_timetable(process, workers=10, m=2, until_s=200.0, rng=0)
    pulls, pushes = table.pull_s, table.push_s
    assert (pulls >= windows.from_s[table.worker]).all()
    assert (pushes <= windows.until_s[table.worker]).all()
    late = np.flatnonzero(windows.from_s > 0)
    assert set(late) <= set(table.worker[pulls > 50].tolist())
    gone = np.flatnonzero(windows.until_s < np.inf)
    assert not set(gone) & set(table.worker[pulls > 90].tolist())
    assert table.push_s[-1] > 190


def test_who_leaves_does_not_depend_on_who_joins():
    both, one = there(50, Change(0.5, 1.0), Change(0.5, 9.0)), there(50, leave=Change(0.5, 9.0))
    assert (both.until_s == one.until_s).all()
    assert len(set(there(50, Change(0.5, 1.0), seed=1).from_s - both.from_s)) > 1


def test_windows_of_a_trace_are_cut():
    trace = Availability.of(np.array([0, 0, 1]), np.array([0.0, 40, 5]), np.array([10.0, 60, 8]))
    windows = there(2, Change(1.0, 6.0), Change(1.0, 50.0), trace)
    assert windows.from_s.tolist() == [6, 40, 6]
    assert windows.until_s.tolist() == [10, 50, 8]


@pytest.mark.parametrize("at_s", [1e4, 1e9])
@pytest.mark.parametrize("coupling", [None, Coupling(max_concurrent=4)])
def test_time_when_nobody_is_there_costs_nothing(at_s, coupling):
    """All visits of twice 1e9 s would not fit into any memory."""
    every = np.repeat(np.arange(12), 2)
    begins, ends = np.tile([0.0, at_s], 12), np.tile([5.0, np.inf], 12)
    for windows in (there(12, join=Change(1.0, at_s)), Availability.of(every, begins, ends)):
        work = Work(ConstantSteps(1), 1.0)
        process = ContinuousTime(Exponential(1.0), work, availability=windows)
        table = make_timetable(process, workers=12, m=3, rounds=400, rng=0, coupling=coupling)
        late = table.push_s[table.push_s > 5.0]
        assert at_s < late[0] < at_s + 60
        assert table.push_s[-1] < at_s + 2000


def test_nothing_changes_without_changes():
    assert there(3) is None
    with pytest.raises(ConfigError, match="No worker is ever there"):
        there(3, Change(1.0, 9.0), Change(1.0, 5.0))


@pytest.mark.parametrize(
    "text", ["0.3", "x@5", "0.3@", "1.5@5", "0.3@-1", "0.3@inf", "nan@3", "1@1e13"]
)
def test_misuse(text):
    with pytest.raises(ConfigError):
        Change.parse("join", text)
    assert Change.parse("join", "0.3@600") == Change(0.3, 600.0)
