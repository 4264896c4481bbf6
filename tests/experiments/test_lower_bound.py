"""The arrivals and the curves of the experiment on Theorem 1, and what its page says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic.study import Job
from anarchic.study.findings import Findings, Outcome
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("lower-bound")
uniform = names_of("lower-bound", "uniform")


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


def findings(**strange):
    """All cells as the theory has them, but for the number that is given: ball, off, or last."""
    lines = []
    for cell in run.STUDY.cells:
        if cell.task != "theorem-1":
            numbers = {"over": 0.9, "over_corrected": 0.9, **strange}
            lines.append(Outcome(cell, [result(cell, 0, **numbers)]))
            continue
        rule, sigma, share = (cell.columns[name] for name in ("rule", "sigma_G", "share"))
        ball = run.closed_form(rule, sigma, share) or 0.0
        numbers = {"ball": ball, "closed_form": ball, "off": 1e-9, "last": 1e-30}
        if sigma == 3.0:
            numbers |= strange
        lines.append(Outcome(cell, [result(cell, 0, **numbers)]))
    return Findings(lines)


def test_the_table_has_what_is_left_of_the_ball_by_share():
    rows = rows_of(run.more_tables(findings()))
    assert rows[0] == ["1.0", "1.0000", "1.0000", "1.0000", "0e+00", "1e-30"]
    assert rows[1][:4] == ["0.9", "0.6750", "0.6750", "0.0000"]
    assert [row[0] for row in rows] == ["1.0", "0.9", "0.7", "0.5", run.LATE]


def test_one_cell_that_differs_shows_in_the_table():
    rows = rows_of(
        run.more_tables(findings(ball=1.0))
    )  # at sigma_G = 3, where 9 * 0.675 is expected
    assert float(rows[1][4]) == pytest.approx(1 - 1 / (9 * 0.675), abs=0.05)
    rows = rows_of(run.more_tables(findings(last=1e-3)))
    assert {row[5] for row in rows} == {"1e-03"}


def test_the_claims_see_one_cell_that_differs():
    def met(**strange):
        found = findings(**strange)
        return [claim.holds(claim.measured(found)) for claim in run.STUDY.claims]

    assert met() == [True] * 5
    assert met(off=1e-3) == [False, True, True, True, True]
    assert met(ball=1.0) == [True, False, True, True, True]
    assert met(last=1e-3) == [True, True, False, True, True]
    assert met(over=1.1) == [True, True, True, False, True]
    assert met(over_corrected=1.1) == [True, True, True, True, False]


def test_the_error_under_uniform_arrivals_is_the_closed_form_and_above_the_bound():
    (cell,) = (cell for cell in run.STUDY.cells if cell.task == "theorem-3")
    short = replace(cell, settings={**cell.settings, "rounds": 2000})
    found = uniform.measure(Job(short, seed=5))
    assert found["closed_form"] == pytest.approx(1 / 9)  # s = 0.2: 0.2 / 1.8
    assert found["measured"] == pytest.approx(1 / 9, rel=0.15)
    assert found["over"] > 100
    assert found["over_corrected"] < 1 < found["margin"]


def test_how_loose_the_corrected_bound_is_stands_below_the_table():
    (cell,) = (cell for cell in run.STUDY.cells if cell.task == "theorem-3")
    found = Findings([Outcome(cell, [result(cell, 0, over=100.0, over_corrected=0.04)])])
    assert uniform.looseness(found) == "25"
    assert "is loose: it is 25 times the error" in uniform.table(found)
    assert uniform.looseness(Findings([Outcome(cell)])) == ""
    assert "loose" not in uniform.table(Findings([Outcome(cell)]))
