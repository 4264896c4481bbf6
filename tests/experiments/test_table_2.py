"""What table 2 says of SCAFFOLD and FedProx, and in which order it is run."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from anarchic.study.findings import Findings, Line
from anarchic.study.page import mean_difference
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
    assert ("(1 seed, ieee)" in text) == has_it


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
            Line(c, [result(c, 0, ends[c.columns["setting"]], **numbers)])
            for c in cells
            if c.columns["setting"] in ends
        ]
    )


def test_whatever_else_diverged_is_told_beside_plain_steps():
    assert run.besides(prox("rounds")) == ""
    text = run.besides(prox("diverged"))
    assert text.count("\n- ") == 1
    assert "p = 5, *afl-fedprox*: 1 of 1 diverged after the evaluation at round 7,200" in text
    assert "with plain steps the cell (table 1) went through, 0.7964" in text


def test_the_mean_difference_is_told_without_what_diverged():
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


@pytest.mark.parametrize(("rounds", "told"), [(41, True), (150, False)])
def test_the_plain_loop_is_told_if_it_diverged(rounds, told):
    of = {"option-2": 75, "plain": rounds}
    cells = [c for c in run.STUDY.cells if (c.task, c.columns["p"]) == ("controls", 10)]
    lines = [
        Line(c, [result(c, 0, rounds=of[c.columns["setting"]])])
        for c in cells
        if c.columns["setting"] in of
    ]
    text = run.independent(Findings(lines))
    assert ("it diverges, too, after 41 rounds, ours after\n75" in text) == told


@pytest.mark.parametrize(("rounds", "told"), [(28, False), (150, True)])
def test_what_the_short_runs_do_not_explain_is_said(rounds, told):
    short = [
        Line(c, [result(c, 0, rounds=rounds, median=4.7 if c.columns["p"] == 1 else 0.9)])
        for c in run.STUDY.cells
        if (c.task, c.columns["setting"]) == ("controls", "option-1")
    ]
    table = findings("cnn-option-1", "diverged", last10=0.1, final=0.1, rounds=0)
    assert ("lived all its 150 rounds" in run.seen(Findings([*short, *table]))) == told
