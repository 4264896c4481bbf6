"""The arrivals and the curves of the experiment on Theorem 1, and what its page says."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.study.findings import Findings, Line
from tests.experiments.run_files import names_of
from tests.study.make import result

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


def findings(**strange):
    """All cells as the theory has them, but for the number that is given: ball, off, or last."""
    lines = []
    for cell in run.STUDY.cells:
        rule, sigma, share = (cell.columns[name] for name in ("rule", "sigma_G", "share"))
        ball = run.closed_form(rule, sigma, share) or 0.0
        numbers = {"ball": ball, "closed_form": ball, "off": 1e-9, "last": 1e-30}
        if sigma == 3.0:
            numbers |= strange
        lines.append(Line(cell, [result(cell, 0, **numbers)]))
    return Findings(lines)


def test_what_the_theory_has_is_told():
    told = run.notes(findings())
    assert "end within 1e-09 of sigma_G^2" in told
    assert "keeps 67 % of sigma_G^2, at 0.7 24 %" in told  # 0.675, 0.242
    assert "1e-30 or below" in told
    assert told.count("\n- ") == 4


@pytest.mark.parametrize(
    ("strange", "untold"),
    [
        ({"off": 1e-3}, "The ball is there"),
        ({"ball": 1.0}, "It grows as sigma_G^2"),
        ({"last": 1e-3}, "AFA-CS leaves it"),
    ],
)
def test_what_one_cell_contradicts_is_not_told(strange, untold):
    told = run.notes(findings(**strange))
    assert untold not in told
    assert told.count("\n- ") == 3


def test_a_ball_that_needs_silence_is_not_told_as_one_that_does_not():
    whole = findings()
    between = [
        Line(x.cell, [result(x.cell, 0, ball=0.0, closed_form=x.mean("closed_form"))])
        if (x.get("rule"), x.get("share")) == ("AFA-CD", 0.9)
        else x
        for x in whole
    ]
    assert "silence" in run.without_silence(whole)
    assert run.without_silence(Findings(between)) == ""
