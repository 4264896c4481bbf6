"""What table 2 says of SCAFFOLD, and in which order it is run."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from anarchic.study.findings import Findings, Line
from anarchic.study.running import Flags, Places, jobs
from tests.experiments.run_files import names_of
from tests.study.make import result

run = names_of("table-2")


def test_one_and_ten_labels_come_first_in_table_2(tmp_path):
    todo = jobs(run.STUDY, Flags(task="cnn"), Places(tmp_path, tmp_path, tmp_path))
    assert [job.cell.columns["p"] for job in todo] == [1] * 4 + [10] * 4 + [2] * 4 + [5] * 4


def findings(task, stopped_at, p=1, **numbers):
    """SCAFFOLD's cells of a task and a p, as one and the same run would have gone."""
    numbers = {"best": 0.6, "rounds": 400, **numbers}
    cells = [
        cell
        for cell in run.STUDY.cells
        if (cell.task, cell.columns["p"]) == (task, p)
        if cell.columns["setting"].endswith("scaffold")
    ]
    return [Line(cell, [result(cell, 0, stopped_at, **numbers)]) for cell in cells]


def scaffold(stopped_at, **numbers):
    return Findings(findings("cnn", stopped_at, **numbers))


@pytest.mark.parametrize("stopped_at", ["rounds", "diverged"])
def test_scaffold_is_told_as_it_went(stopped_at):
    text = run.failures(scaffold(stopped_at, last10=0.5, final=0.1))
    assert "option II, p = 1, *scaffold*" in text
    assert ("diverged after the evaluation at round 400" in text) == (stopped_at == "diverged")
    assert ("Under option II" in text) == (stopped_at == "diverged")


def test_what_diverged_at_once_is_told_in_one_sentence():
    text = run.failures(scaffold("diverged", last10=0.1, final=0.1, rounds=0))
    assert "*scaffold* (0.1641); option II, p = 1, *afl-scaffold* (0.3935)." in text
    assert "evaluation at round" not in text


@pytest.mark.parametrize(("at_1", "at_10"), [*itertools.product(["rounds", "diverged"], repeat=2)])
def test_option_1_has_the_papers_pattern_if_it_fails_at_1_and_succeeds_at_10(at_1, at_10):
    one, ten = (
        findings("cnn-option-1", stopped_at, p=p, last10=0.8, final=0.8)
        for p, stopped_at in ((1, at_1), (10, at_10))
    )
    text = run.failures(Findings([*one, *ten]))
    # The paper has 0.8083 and 0.8051.
    has_it = (at_1, at_10) == ("diverged", "rounds")
    assert ("as SCAFFOLD does in the paper, there within 0.0083" in text) == has_it


def test_option_1_is_the_same_cell_with_the_other_option():
    cells = {cell.name: cell for cell in run.STUDY.cells if "cnn" in cell.task}
    one, two = (cells[f"p2-m5-M10-K5-afl-scaffold{end}"] for end in ("-option1", ""))
    assert dict(one.settings.local_options) == {"option": 1}
    assert replace(one.settings, local_options=two.settings.local_options) == two.settings
    assert (one.paper, one.columns) == (two.paper, two.columns)


def test_what_diverged_counts_with_its_last_evaluation():
    claim = next(c for c in run.STUDY.claims if "p = 1," in c.text)
    assert claim.measured(scaffold("diverged", last10=0.5, final=0.1)) == 0.1
    assert claim.measured(scaffold("rounds", last10=0.5, final=0.1)) == 0.5
