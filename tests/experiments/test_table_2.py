"""The tables of SCAFFOLD and FedProx, and the order in which they are run."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from anarchic.study.findings import Findings, Outcome
from anarchic.study.flags import Flags, Paths
from anarchic.study.page import mean_difference
from anarchic.study.reproduce import jobs
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("table-2")


def test_one_and_ten_labels_come_first_in_table_2(tmp_path):
    todo = jobs(run.STUDY, Flags(task="cnn"), Paths(tmp_path, tmp_path / "none", tmp_path))
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
    return [Outcome(cell, [result(cell, 0, stopped_at, **numbers)]) for cell in cells]


def scaffold(stopped_at, **numbers):
    return Findings(findings("cnn", stopped_at, **numbers))


@pytest.mark.parametrize(("stopped_at", "end"), [("rounds", "finished"), ("diverged", "diverged")])
def test_every_run_on_cifar_10_stands_with_its_end(stopped_at, end):
    first, _ = rows_of(run.runs(scaffold(stopped_at, last10=0.5, final=0.1)))
    begin = ["option II", "1", "scaffold", "0", "400", end]
    assert first == [*begin, "0.1000", "0.5000", "0.6000", "0.1641"]


def test_option_1_is_the_same_cell_with_the_other_option():
    cells = {cell.name: cell for cell in run.STUDY.cells if "cnn" in cell.task}
    one, two = (cells[f"p2-m5-M10-K5-afl-scaffold{end}"] for end in ("-option1", ""))
    assert dict(one.settings.local_options) == {"option": 1}
    assert replace(one.settings, local_options=two.settings.local_options) == two.settings
    assert (one.paper, one.columns) == (two.paper, two.columns)


@pytest.mark.parametrize(
    ("stopped_at", "last10", "share"),
    [("diverged", 0.5, 1.0), ("rounds", 0.29, 1.0), ("rounds", 0.31, 0.0)],
)
def test_scaffold_fails_if_it_diverges_or_ends_low(stopped_at, last10, share):
    at_1, at_10 = run.scaffold_fails("cnn", "II")
    assert at_1.measured(scaffold(stopped_at, last10=last10)) == share
    assert at_10.measured(scaffold(stopped_at, p=10, last10=last10)) == share
    assert at_1.holds(share) != at_10.holds(share)


def prox(stopped_at, **numbers):
    """The cells of FedProx on CIFAR-10 at p = 5, the asynchronous one as told."""
    cells = [c for c in run.STUDY.cells if (c.task, c.columns["p"]) == ("cnn", 5)]
    numbers = {"last10": 0.77, "final": 0.79, "best": 0.79, "rounds": 7200, **numbers}
    ends = {"fedprox": "rounds", "afl-fedprox": stopped_at}
    return Findings(
        [
            Outcome(c, [result(c, 0, ends[c.columns["setting"]], **numbers)])
            for c in cells
            if c.columns["setting"] in ends
        ]
    )


def test_what_afl_costs_fedprox_stands_by_seed_and_marks_what_diverged():
    outcomes = []
    for p in (1, 2, 5, 10):
        for setting, ours in {"fedprox": 0.8, "afl-fedprox": 0.7}.items():
            (cell,) = (
                c
                for c in run.STUDY.cells
                if (c.task, c.columns["p"], c.columns["setting"]) == ("cnn", p, setting)
            )
            end = "diverged" if (p, setting) == (5, "afl-fedprox") else "rounds"
            outcomes.append(Outcome(cell, [result(cell, 0, end, last10=ours)]))
    rows = rows_of(run.costs(Findings(outcomes)))
    assert rows == [["1", "0.1000"], ["2", "0.1000"], ["5", "0.1000*"], ["10", "0.1000"]]


def test_the_mean_difference_is_given_with_and_without_what_diverged():
    # 0.77 against 0.7931, and against 0.8031.
    assert mean_difference(prox("rounds"), 4) == "0.0281"
    assert mean_difference(prox("diverged"), 4) == "0.0281, 0.0231 without the 1 that diverged"


def test_plain_steps_are_those_of_the_same_cell_of_table_1():
    line = prox("rounds").one(setting="afl-fedprox")
    other = run.plain(line).cell
    assert other.columns == {**line.cell.columns, "setting": "async-dynamic"}
    assert (line.cell.asked["local_rule"], other.asked["local_rule"]) == ("prox", "sgd")


def test_prox_leaves_a_long_visit_a_quarter_of_its_way():
    (cell,) = (c for c in run.STUDY.cells if (c.task, c.columns["setting"]) == ("rnn", "fedprox"))
    asked = cell.asked
    x = 0.0
    for _ in range(asked["local_steps"]):
        x -= asked["local_lr"] * (1.0 + asked["mu"] * x)  # a constant gradient of 1
    left = -x / (asked["local_steps"] * asked["local_lr"])
    assert left == pytest.approx(0.25, abs=0.01)
    assert left * asked["server_lr"] == pytest.approx(12, abs=0.5)
