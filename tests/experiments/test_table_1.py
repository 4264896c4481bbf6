"""What table 1 shows beside the paper's cells: the data, and what tames the RNN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic import AfaCd
from anarchic.core.types import Update
from anarchic.study.findings import Findings, Line, read_findings
from anarchic.study.running import Flags, Places, jobs
from tests.experiments.run_files import names_of
from tests.study.make import result

run = names_of("table-1")
table_2 = names_of("table-2")


def test_samples_by_hand():
    found = run.samples(8, 2, [np.arange(1), np.arange(3), np.arange(2)])
    assert (found["workers"], found["dealt"], found["mean"]) == (3, 6, 2.0)
    assert found["deviation"] == pytest.approx((2 / 3) ** 0.5)
    assert (found["least"], found["most"]) == (1, 3)
    assert (found["samples"], found["samples_a_worker"]) == (10, pytest.approx(10 / 3))


def test_lengths_are_noted_and_nothing_is_changed():
    rule = run.Lengths(AfaCd(m=1, server_lr=2.0))
    update = Update("a", 0, local_steps=7, local_lr=0.5, direction=np.array([3.0, 4.0]))
    state = rule.receive(rule.init(np.array([10.0, 10.0])), update)
    assert rule.seen == [2.5]  # 0.5 * 5
    assert state.params.tolist() == [7.0, 6.0]  # 10 - 2 * 0.5 * (3, 4)


def test_apart_changes_one_thing_of_an_asynchronous_cell():
    cells = {(c.task, c.name): c for c in run.STUDY.cells}
    apart = [c for c in run.STUDY.cells if c.task == "rnn-apart"]
    assert len(apart) == 6
    for cell in apart:
        base = cells["rnn", cell.name.rpartition("-")[0]]
        changed = {n: v for n, v in cell.asked.items() if v != base.asked[n]}
        assert changed == run.CHANGES[cell.columns["change"]]
        assert base.asked["versions_back"] == 5


def test_the_data_table_has_fedprox_beside_what_was_measured():
    found = read_findings(run.STUDY.cells, run.STUDY.results)
    text = run.data_table(found)
    assert "| samples | 516,505 | 517,106 |" in text
    assert "| mnist | 100 | 542 | 542 | 540 | 540 |" in text  # 5421 // 10, // 20 * 2, ...


def test_one_and_ten_labels_come_first_in_table_2(tmp_path):
    todo = jobs(table_2.STUDY, Flags(task="cnn"), Places(tmp_path, tmp_path, tmp_path))
    assert [job.cell.columns["p"] for job in todo] == [1] * 4 + [10] * 4 + [2] * 4 + [5] * 4


def scaffold(stopped_at, **numbers):
    cells = [c for c in table_2.STUDY.cells if c.task == "cnn" and c.columns["p"] == 1]
    cell = next(c for c in cells if c.columns["setting"] == "scaffold")
    numbers = {"best": 0.6, "rounds": 400, **numbers}
    return Findings([Line(cell, [result(cell, 0, stopped_at, **numbers)])])


@pytest.mark.parametrize("stopped_at", ["rounds", "diverged"])
def test_scaffold_is_told_as_it_went(stopped_at):
    text = table_2.failures(scaffold(stopped_at, last10=0.5, final=0.1))
    assert "cnn, p = 1, *scaffold*" in text
    assert ("diverged after the evaluation at round 400" in text) == (stopped_at == "diverged")
    assert ("Under option II" in text) == (stopped_at == "diverged")


def test_option_1_is_the_same_cell_with_the_other_option():
    cells = {cell.name: cell for cell in table_2.STUDY.cells if "cnn" in cell.task}
    one, two = (cells[f"p2-m5-M10-K5-afl-scaffold{end}"] for end in ("-option1", ""))
    assert dict(one.settings.local_options) == {"option": 1}
    assert replace(one.settings, local_options=two.settings.local_options) == two.settings
    assert (one.paper, one.columns) == (two.paper, two.columns)


def test_what_diverged_counts_with_its_last_evaluation():
    claim = next(c for c in table_2.STUDY.claims if "p = 1," in c.text)
    assert claim.measured(scaffold("diverged", last10=0.5, final=0.1)) == 0.1
    assert claim.measured(scaffold("rounds", last10=0.5, final=0.1)) == 0.5
