"""The arrivals and the curves of the experiment on Theorem 1."""

from __future__ import annotations

import numpy as np
import pytest

from tests.experiments.run_files import names_of

run = names_of("lower-bound")


def test_the_second_worker_is_silent_for_half_of_the_run():
    table = run.timetable("1, then 0.9", 200, 0)
    table.check()
    half = len(table) // 2
    assert not table.worker[:half].any()
    assert table.worker[half:].any()


def test_a_curve_holds_means_since_the_point_before():
    curve = run.by_round(np.array([9.0, 1.0, 2.0, 3.0]))  # x_0 is no round
    assert curve == {"round": [1, 2, 3], "squared_gradient": [1.0, 2.0, 3.0]}
    curve = run.by_round(np.arange(1001.0))
    widths = np.diff([0, *curve["round"]])
    assert widths @ curve["squared_gradient"] == pytest.approx(500_500)  # 1 + .. + 1000


@pytest.mark.parametrize("rule", ["AFA-CD", "AFA-CS"])
def test_a_silent_worker_leaves_sigma_squared(rule):
    table = run.timetable(1.0, 150, 0)
    seen = run.squared_gradients(run.RULES[rule](), 3.0, table)
    assert len(seen) == 151
    assert (seen[0], seen[-1]) == (16.0, pytest.approx(9.0))  # 4 x_0^2, sigma_G^2
