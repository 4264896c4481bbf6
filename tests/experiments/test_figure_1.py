"""The gap to the baseline, and that the committed results bear out why it is missed."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from anarchic.study import find
from anarchic.study.findings import Findings, Outcome, read_findings
from tests.experiments.run_files import names_of
from tests.study.make import result

run = names_of("figure-1")


def results_of(name):
    study = find.load(name)
    return read_findings(study.cells, study.results)


def gap(of):
    baseline = read_findings(run.STUDY.cells, run.STUDY.results).one(p=1, algorithm="baseline")
    return baseline.ours - of.ours


def test_the_worst_gap_is_that_of_the_p_where_it_is_largest():
    ours = {"baseline": 0.9, "fedavg": 0.9, "afa-cs": 0.95}
    cells = [cell for cell in run.STUDY.cells if cell.task == "lr"]
    values = {c.name: ours.get(c.columns["algorithm"], 0.8 + c.columns["p"] / 100) for c in cells}
    found = Findings([Outcome(c, [result(c, 0, last10=values[c.name])]) for c in cells])
    assert run.worst_gap(found, task="lr", algorithm="afa-cd") == pytest.approx(0.09)  # at p = 1
    assert run.worst_gap(found, task="lr", algorithm="afa-cs") == pytest.approx(-0.05)


@pytest.mark.parametrize("task", ["lr", "lr-by-c"])
def test_with_uniform_arrivals_the_gap_is_smaller(task):
    lines = results_of("figures-5-6").where(task=task, p=1)
    assert gap(lines.one(arrivals="uniform")) < gap(lines.one(arrivals="biased"))


def test_dynamic_steps_cost_afa_cs_at_p_1_only_if_divided_by_their_own_number():
    found = results_of("figures-5-6").where(arrivals="biased-afa-cs", p=1)
    divided = {task: gap(found.one(task=task)) for task in ("lr", "lr-by-c")}
    assert divided["lr-by-c"] < 0.02 < divided["lr"]
