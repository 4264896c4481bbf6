import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Dropout,
    Exponential,
    ExponentialTime,
    SpeedClasses,
    Work,
    make_timetable,
)


def test_workers_that_keep_working_by_hand():
    """Two steps of 1 s: the fast worker pushes every second, the slow one every three."""
    speeds = SpeedClasses({"fast": (0.5, 0.5), "slow": (0.5, 1.5)})
    process = ContinuousTime(Exponential(0.0), Work(ConstantSteps(2), 1.0, speeds))
    visits = process.visits(np.random.default_rng(0), 50, 6.5)
    counts = np.bincount(visits.worker)
    assert set(counts.tolist()) == {6, 2}
    fast = int(np.argmax(counts == 6))
    assert visits.pull_s[visits.worker == fast].tolist() == [0, 1, 2, 3, 4, 5]
    assert visits.push_s[visits.worker == fast].tolist() == [1, 2, 3, 4, 5, 6]
    slow = int(np.argmax(counts == 2))
    assert visits.push_s[visits.worker == slow].tolist() == [3, 6]


def test_ten_workers_that_keep_working_make_a_round_of_five_in_half_a_second():
    """Pushes come at rate 10: the anarchic side of the straggler comparison."""
    process = ContinuousTime(
        Exponential(0.0), Work(ConstantSteps(1), 1.0, time_distribution=ExponentialTime())
    )
    rounds = 20_000
    table = make_timetable(process, workers=10, m=5, rounds=rounds, rng=0)
    mean = table.version_s[-1] / rounds
    assert abs(mean - 0.5) < 4 * np.sqrt(5) / 10 / np.sqrt(rounds)


def test_fast_workers_come_more_often():
    speeds = SpeedClasses({"fast": (0.5, 1.0), "slow": (0.5, 4.0)})
    process = ContinuousTime(Exponential(2.0), Work(ConstantSteps(1), 2.0, speeds))
    visits = process.visits(np.random.default_rng(0), 1000, 1000.0)
    counts = np.bincount(visits.worker, minlength=1000)
    fast, slow = counts[counts > 175], counts[counts <= 175]
    assert fast.mean() == pytest.approx(1000 / 4, rel=0.02)
    assert slow.mean() == pytest.approx(1000 / 10, rel=0.02)


def test_a_stream_continues_where_it_stopped():
    """Two steps of 1 s and no idling: pulls at 0, 2, 4, ..."""
    process = ContinuousTime(Exponential(0.0), Work(ConstantSteps(2), 1.0))
    stream = process.begin(np.random.default_rng(0), 1)
    assert stream.next_s == 0
    assert stream.until(3.0).push_s.tolist() == [2, 4]  # pulled before 3, whenever they push
    assert stream.next_s == 4
    assert stream.until(4.0).push_s.tolist() == []
    assert stream.until(8.5).pull_s.tolist() == [4, 6, 8]


def test_nobody_comes_when_all_have_left():
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(leave=0.9))
    stream = process.begin(np.random.default_rng(0), 20)
    visits = stream.until(1e9)
    assert set(visits.worker.tolist()) == set(range(20))
    assert stream.next_s == np.inf
    assert len(stream.until(np.inf)) == 0


@pytest.mark.parametrize("horizon_s", [-1.0, np.inf, np.nan])
def test_an_infinite_or_negative_horizon_is_refused(horizon_s):
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0))
    with pytest.raises(ConfigError, match="a finite horizon_s >= 0, got"):
        process.visits(np.random.default_rng(0), 1, horizon_s)


def test_zero_workers_are_refused():
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0))
    with pytest.raises(ConfigError, match="workers >= 1, got 0"):
        process.visits(np.random.default_rng(0), 0, 1.0)


def test_lost_visits_stop_at_a_uniform_part_of_their_work():
    n = 100_000
    seconds = np.full(n, 10.0)
    lost = Dropout(lost_share=0.3).loses(np.random.default_rng(0), seconds)
    assert abs(lost.mean() - 0.3) < 4 * np.sqrt(0.21 / n)
    assert (seconds[~lost] == 10).all()
    assert abs(seconds[lost].mean() - 5) < 4 * 10 / np.sqrt(12 * 0.3 * n)
    assert seconds[lost].max() < 10


def test_a_share_of_visits_is_lost():
    process = ContinuousTime(
        Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(lost_share=0.25)
    )
    visits = process.visits(np.random.default_rng(0), 1000, 100.0)
    # At the horizon a few more visits are known to be lost than would be if all had ended.
    assert visits.lost.mean() == pytest.approx(0.25, abs=0.01)


def test_workers_leave_for_ever():
    process = ContinuousTime(Exponential(1.0), Work(ConstantSteps(1), 1.0), Dropout(leave=0.2))
    visits = process.visits(np.random.default_rng(0), 5000, 1e6)
    counts = np.bincount(visits.worker, minlength=5000)
    assert counts.min() == 1
    assert abs(counts.mean() - 5) < 4 * np.sqrt(20 / 5000)  # geometric: mean 5, variance 20


@pytest.mark.parametrize("settings", [{"lost_share": 1.0}, {"lost_share": -0.1}, {"leave": 1.0}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError, match="at 1 no update would arrive"):
        Dropout(**settings)
