import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import (
    ConstantSteps,
    ExponentialTime,
    SpeedClasses,
    Synchronous,
    UniformSteps,
    Work,
)

STRAGGLERS = Work(ConstantSteps(1), 1.0, time_distribution=ExponentialTime())


def durations(table):
    return np.diff(table.version_s, prepend=0.0)


def test_a_round_lasts_as_long_as_its_slowest_by_hand():
    """Everyone takes 2 s, two of two workers: rounds begin at 0, 2, 4 and fold 0 before 1."""
    table = Synchronous(2, 2, Work(ConstantSteps(4), 0.5)).timetable(0, 3)
    table.check()
    assert table.worker.tolist() == [0, 1] * 3
    assert table.visit.tolist() == [0, 0, 1, 1, 2, 2]
    assert table.base_version.tolist() == [0, 0, 1, 1, 2, 2]
    assert table.staleness.tolist() == [0] * 6
    assert table.pull_s.tolist() == [0, 0, 2, 2, 4, 4]
    assert table.push_s.tolist() == [2, 2, 4, 4, 6, 6]
    assert table.local_steps.tolist() == [4] * 6


def test_mean_round_of_five_exponential_stragglers_is_h5():
    rounds = 40_000
    table = Synchronous(10, 5, STRAGGLERS).timetable(1, rounds)
    table.check()
    h5 = sum(1 / k for k in range(1, 6))
    deviation = np.sqrt(sum(1 / k**2 for k in range(1, 6)))
    assert h5 == pytest.approx(2.2833, abs=1e-4)
    assert abs(durations(table).mean() - h5) < 4 * deviation / np.sqrt(rounds)


def test_rows_of_a_round_stand_in_the_order_of_their_pushes():
    table = Synchronous(50, 8, Work(UniformSteps(1, 10), 1.0)).timetable(2, 200)
    table.check()  # checks the order of pushes
    assert len(set(table.local_steps.tolist())) == 10


def test_workers_are_picked_uniformly_without_replacement():
    rounds = 10_000
    table = Synchronous(10, 5, STRAGGLERS, lost_share=0.2, timeout_s=1.0).timetable(3, rounds)
    table.check()
    ordered = np.sort(table.worker.reshape(rounds, 5), axis=1)
    assert (np.diff(ordered, axis=1) > 0).all()
    counts = np.bincount(table.worker, minlength=10)
    assert np.abs(counts - rounds / 2).max() < 4.5 * np.sqrt(rounds * 0.25)


def test_a_slow_class_makes_rounds_slow():
    speeds = SpeedClasses({"fast": (0.5, 1.0), "slow": (0.5, 10.0)})
    table = Synchronous(100, 10, Work(ConstantSteps(1), 1.0, speeds)).timetable(4, 1000)
    # Ten of 100 workers are almost never all fast.
    assert (durations(table) > 9.999).mean() > 0.99


def test_a_drop_out_stalls_the_round_until_the_timeout():
    """Work takes 1 s and is lost half the time: a place fills after 10 k + 1 s, k geometric."""
    rounds = 20_000
    work = Work(ConstantSteps(1), 1.0)
    table = Synchronous(4, 1, work, lost_share=0.5, timeout_s=10.0).timetable(5, rounds)
    table.check()
    stalls = (durations(table) - 1) / 10
    assert np.allclose(stalls, np.round(stalls), atol=1e-6)
    assert abs(stalls.mean() - 1) < 4 * np.sqrt(2 / rounds)  # geometric: mean 1, variance 2
    assert np.allclose(table.push_s - table.pull_s, 1.0)  # a replacement pulls when it is picked


def test_when_everyone_is_picked_the_lost_worker_is_tried_again():
    table = Synchronous(3, 3, STRAGGLERS, lost_share=0.5, timeout_s=1.0).timetable(6, 100)
    table.check()
    assert (np.sort(table.worker.reshape(100, 3), axis=1) == np.arange(3)).all()


def test_replacements_are_uniform_among_the_free():
    """One of three, lost nearly always at first: who comes in the end is still anyone."""
    rounds = 30_000
    table = Synchronous(3, 2, STRAGGLERS, lost_share=0.8, timeout_s=1.0).timetable(7, rounds)
    counts = np.bincount(table.worker, minlength=3)
    assert np.abs(counts - rounds * 2 / 3).max() < 4.5 * np.sqrt(rounds * 2 / 9)


def test_repeats_with_the_seed():
    process = Synchronous(10, 5, STRAGGLERS, lost_share=0.2, timeout_s=1.0)
    assert process.timetable(8, 20) == process.timetable(np.random.default_rng(8), 20)
    assert process.timetable(8, 20) != process.timetable(9, 20)
    assert len(process.timetable(8, 0)) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"m": 11}, "m=11 of 10 workers"),
        ({"m": 0}, "m=0 of 10 workers"),
        ({"lost_share": 0.1}, "wait for ever; give Synchronous a timeout_s"),
        ({"lost_share": 1.0, "timeout_s": 1.0}, "0 <= lost_share < 1, got 1.0"),
        ({"timeout_s": 0.0}, "timeout_s < inf, got 0.0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Synchronous(**{"workers": 10, "m": 5, "work": STRAGGLERS, **settings})
