import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, ExponentialSpread, Racing, UniformSteps, Work
from anarchic.participation import racing as racing_module

STRAGGLERS = Work(ConstantSteps(1), 1.0, spread=ExponentialSpread())


def test_mean_round_of_the_fastest_five_of_ten_is_h10_minus_h5():
    rounds = 40_000
    table = Racing(10, 5, STRAGGLERS).timetable(0, rounds)
    table.check()
    expected = sum(1 / k for k in range(6, 11))
    deviation = np.sqrt(sum(1 / k**2 for k in range(6, 11)))
    assert expected == pytest.approx(0.6456, abs=1e-4)
    assert abs(table.version_s[-1] / rounds - expected) < 4 * deviation / np.sqrt(rounds)
    assert table.staleness.max() == 0


def test_the_fewest_steps_win_and_ties_go_to_the_lower_number():
    table = Racing(4, 2, Work(ConstantSteps(3), 1.0)).timetable(0, 2)
    assert table.worker.tolist() == [0, 1, 0, 1]
    assert table.push_s.tolist() == [3, 3, 6, 6]
    assert table.pull_s.tolist() == [0, 0, 3, 3]
    uneven = Racing(20, 2, Work(UniformSteps(5), 1.0)).timetable(0, 100)
    uneven.check()
    assert np.array_equal(uneven.push_s - uneven.pull_s, uneven.local_steps)
    assert uneven.local_steps.mean() < 2


def test_rounds_are_drawn_in_blocks(monkeypatch):
    monkeypatch.setattr(racing_module, "_BLOCK_DRAWS", 25)
    table = Racing(10, 5, STRAGGLERS).timetable(0, 11)
    table.check()
    assert table.rounds == 11


def test_repeats_with_the_seed():
    racing = Racing(10, 5, STRAGGLERS)
    assert racing.timetable(1, 20) == racing.timetable(np.random.default_rng(1), 20)
    assert len(racing.timetable(1, 0)) == 0


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="m=11 of 10 workers"):
        Racing(10, 11, STRAGGLERS)
