"""How the experiment on linear speed-up finds the rounds to a target, and its slope."""

from __future__ import annotations

import numpy as np
import pytest

from tests.experiments.run_files import names_of

run = names_of("speed-up")
CD = {"rule": "AFA-CD", "m": 4, "M": 64, "K": 2, "versions_back": 1}
CS = {"rule": "AFA-CS", "m": 2, "M": 4, "K": 1, "versions_back": 1}


def test_the_leading_order_by_hand():
    leading_order = run.leading_order
    assert leading_order(CD, target=0.75) == pytest.approx(1 / 8)  # (0.375 + 0.375)^2 / 0.75^2
    assert leading_order(CS, target=0.75) == pytest.approx(4 / 4)  # 2 M / m - 1 = 3


def test_the_search_brackets_the_target_from_either_side():
    bracket = run.bracket

    def error(rounds):
        return np.array([1.0, 3.0]) / np.sqrt(rounds)  # mean 2 / sqrt(T): 0.1 at T = 400

    for guess in (100, 390, 410, 3000):
        low, high = bracket(error, guess, 0.1)
        assert low <= 400 <= high <= 1.6 * low


def test_the_crossing_of_a_power_law_is_exact():
    errors = 2 / np.sqrt([[300.0], [450.0]])
    assert run.crossing((300, 450), errors, 0.1) == pytest.approx([400])
    assert run.slope((1, 2, 4), (12, 6, 3)) == pytest.approx(-1)


def test_a_run_goes_through_the_rule_and_is_near_the_leading_order():
    asked = {**CD, "m": 2, "K": 1}
    rounds = round(run.leading_order(asked, target=0.02))
    errors = run.run_of(asked, rounds, 8, 0)
    assert errors.shape == (8,)
    assert errors.mean() == pytest.approx(0.02, rel=0.1)


def test_lines_meet_in_one_cell():
    names = [cell.name for cell in run.STUDY.cells]
    assert len(names) == len(set(names)) == 35
    assert names.count("afa-cd-m1-M64-K1-sync") == 1
