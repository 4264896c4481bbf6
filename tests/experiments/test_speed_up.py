"""How the experiment on linear speed-up finds the rounds to a target, its slope, and its tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic.study.findings import Findings, Outcome
from anarchic.theory import Rates, memory_conditions
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("speed-up")
in_turn = names_of("speed-up", "in_turn")
CD = {"rule": "AFA-CD", "m": 4, "M": 64, "K": 2, "max_staleness": 0}
CS = {"rule": "AFA-CS", "m": 2, "M": 4, "K": 1, "max_staleness": 0}


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


@pytest.mark.slow
def test_a_run_goes_through_the_rule_and_is_near_the_leading_order():
    asked = {**CD, "m": 2, "K": 1}
    rounds = round(run.leading_order(asked, target=0.02))
    errors = run.run_of(asked, rounds, 8, 0)
    assert errors.shape == (8,)
    assert errors.mean() == pytest.approx(0.02, rel=0.1)


def test_lines_meet_in_one_cell():
    names = [cell.name for cell in run.STUDY.cells]
    assert len(names) == len(set(names)) == 39
    assert names.count("afa-cd-m1-M64-K1-sync") == 1


def findings(bend=1.0, m_is_fixed=1.0, **turn):
    """Rounds that fall as n^-1, slower where ``bend`` is more; M^m_is_fixed at m = 4."""
    made = {"margin": 700.0, "bound": 1.0, "measured": 1e-9, "over": 2.0, "rounds": 10}
    turn = {**made, "over_error": 0.1, **turn}
    outcomes = []
    for cell in run.STUDY.cells:
        line, m, M, K = (cell.columns[name] for name in ("line", "m", "M", "K"))
        n = m * K if cell.task == "afa-cd" else M
        numbers = {"rounds": 1e5 * n ** (-1 / bend), "target": 0.1}
        if line == "M, m = 4":
            numbers["rounds"] = 1e5 / 8 * (M / 8) ** m_is_fixed  # at M = 8 it meets the line M
        numbers = turn if line == "in turn" else numbers
        curve = {"rounds": [100, 200], "copy0": [0.2, 0.05], "copy1": [0.2, 0.05]}
        outcomes.append(Outcome(cell, [replace(result(cell, 0, **numbers), curve=curve)]))
    return Findings(outcomes)


def test_the_exponents_of_power_laws_stand_in_the_table():
    rows = rows_of(run.exponents(findings(bend=1.25)))
    assert [row[4] for row in rows[:5]] == ["-0.800"] * 5
    assert rows[6][1:5] == ["M, m = 4", "4 to 16", "sync", "1.000"]
    found = findings()
    assert run.exponents(Findings([*found, Outcome(found.outcomes[0].cell)])) == ""


def test_each_claim_can_be_missed():
    def met(**numbers):
        found = findings(**numbers)
        return [claim.holds(claim.measured(found)) for claim in run.STUDY.claims]

    assert met(m_is_fixed=-1.0, over=0.9) == [True] * 17
    assert met(m_is_fixed=1.0, over=1.1) == [True] * 6 + [False] * 6 + [True] * 5
    assert met(m_is_fixed=1.0, measured=1.0)[-5:] == [False] * 5
    assert met(bend=1.3)[:5] == [False] * 5


def bound_in_turn(workers):
    return in_turn.bound_of(run.in_turn_cell(workers).settings, 10)


def test_the_run_in_turn_stands_beside_the_bound():
    bound = bound_in_turn(12).corrected
    rows = rows_of(in_turn.table(findings(measured=bound / 2)))
    assert [row[0] for row in rows] == ["4", "8", "12", "16", "32"]
    assert rows[2] == ["12", "10", f"{bound / 2:.2e}", "1.00e+00", "2.000 ± 0.100", "0.500", "700"]


def test_how_loose_the_corrected_bound_is_stands_below():
    bounds = sorted(bound_in_turn(M).corrected for M in run.IN_TURN_OF)
    found = findings(measured=bounds[0] / 2)
    said = in_turn.looseness(found)
    assert said == f"2.0 to {2 * bounds[-1] / bounds[0]:.1f}"
    assert f"is loose: it is {said} times the error" in in_turn.table(found)
    assert in_turn.looseness(Findings([Outcome(outcome.cell) for outcome in found])) == ""


@pytest.mark.parametrize("workers", run.IN_TURN_OF)
def test_the_conditions_hold_where_one_worker_per_round_reports_in_turn(workers):
    rates = Rates(server_lr=run.IN_TURN["eta"], local_lr=run.IN_TURN["eta_L"])
    memory = in_turn.rows_in_turn(workers, 100)
    assert all(condition.holds for condition in memory_conditions(1, rates, memory))
