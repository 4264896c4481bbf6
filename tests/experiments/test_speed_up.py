"""How the experiment on linear speed-up finds the rounds to a target, its slope, and its words."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.study.findings import Findings, Line
from anarchic.theory import Memory, Rates, memory_conditions
from tests.experiments.run_files import names_of
from tests.study.make import result

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


def findings(bend=1.0, m_is_fixed=1.0, **turn):
    """Lines that fall as n^-1, slower where ``bend`` is more; M^m_is_fixed at m = 4."""
    turn = {"margin": 700.0, "bound": 1.0, "measured": 2.0, "over": 2.0, "rounds": 10, **turn}
    lines = []
    for cell in run.STUDY.cells:
        line, m, M, K = (cell.columns[name] for name in ("line", "m", "M", "K"))
        n = m * K if cell.task == "afa-cd" else M
        numbers = {"rounds": 1e5 * n ** (-1 / bend), "beside": bend**n, "step": 0.1}
        if line == "M, m = 4":
            numbers["rounds"] = 1e5 / 8 * (M / 8) ** m_is_fixed  # at M = 8 it meets the line M
        numbers = turn if line == "in turn" else numbers
        lines.append(Line(cell, [result(cell, 0, **numbers)]))
    return Findings(lines)


def test_lines_bend_only_if_they_take_more_rounds_than_the_leading_order():
    told = run.bends(findings(bend=1.02))  # exponents -1/1.02, all alike
    assert "at m = 32 the step is 0.10, and it takes 1.88 times" in told  # 1.02^32
    assert "a little above -1, by 0.020 to 0.020" in told
    assert run.bends(findings(bend=1.0)) == ""
    assert "above -1" not in run.bends(findings(bend=1.3))  # -0.77 is not a little above


def test_afa_cs_alone_is_the_farthest_above_only_if_it_is():
    whole = findings(bend=1.02)
    slow = [slower(x) if (x.get("line"), x.get("setting")) == ("M", "async") else x for x in whole]
    assert run.OLDEST in run.bends(Findings(slow))
    slow = [slower(x) if (x.get("line"), x.get("setting")) == ("K", "async") else x for x in whole]
    assert run.OLDEST not in run.bends(Findings(slow))


def slower(line):
    numbers = line.results[0].numbers
    rounds = numbers["rounds"] * line.get("M" if line.get("line") == "M" else "K") ** 0.05
    return Line(line.cell, [result(line.cell, 0, **{**numbers, "rounds": rounds})])


def test_more_workers_take_more_rounds_only_if_they_do():
    told = run.with_m_fixed(findings())
    assert "exponent is 1.00, *more* workers take more rounds, 6,250 at M = 4" in told
    assert run.with_m_fixed(findings(m_is_fixed=-1.0)) == ""
    assert run.with_m_fixed(findings(bend=1.3)) == ""  # nor is it met where m grows


def test_theorem_4_is_false_only_where_its_conditions_hold_and_its_bound_does_not():
    assert "by a factor of 700 or more" in run.above_the_bound(findings())
    assert run.above_the_bound(findings(over=0.9)) == ""
    assert run.above_the_bound(findings(margin=0.9)) == ""


def test_the_conditions_hold_where_one_worker_a_round_reports_in_turn():
    rates = Rates(server_lr=run.ROBIN["eta"], local_lr=run.ROBIN["eta_L"])
    workers = run.ROBIN["M"]
    memory = Memory.steady(workers=workers, rounds=100, row_age=workers - 1, fresh=1)
    assert all(condition.holds for condition in memory_conditions(1, rates, memory))
