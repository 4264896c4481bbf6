import numpy as np
import pytest

from anarchic.study import find

STUDY = find.load("lower-bound")


def lower_bound(name):
    """A function of the experiment's run.py."""
    return STUDY.cells[0].measure.__globals__[name]


def test_the_second_worker_is_silent_for_half_of_the_run():
    table = lower_bound("timetable")("1, then 0.9", 200, 0)
    table.check()
    half = len(table) // 2
    assert not table.worker[:half].any()
    assert table.worker[half:].any()


def test_a_curve_holds_means_since_the_point_before():
    curve = lower_bound("by_round")(np.array([9.0, 1.0, 2.0, 3.0]))  # x_0 is no round
    assert curve == {"round": [1, 2, 3], "squared_gradient": [1.0, 2.0, 3.0]}
    curve = lower_bound("by_round")(np.arange(1001.0))
    widths = np.diff([0, *curve["round"]])
    assert widths @ curve["squared_gradient"] == pytest.approx(500_500)  # 1 + .. + 1000


@pytest.mark.parametrize("rule", ["AFA-CD", "AFA-CS"])
def test_a_silent_worker_leaves_sigma_squared(rule):
    table = lower_bound("timetable")(1.0, 150, 0)
    seen = lower_bound("squared_gradients")(lower_bound("RULES")[rule](), 3.0, table)
    assert len(seen) == 151
    assert (seen[0], seen[-1]) == (16.0, pytest.approx(9.0))  # 4 x_0^2, sigma_G^2
