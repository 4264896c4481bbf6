"""AFA-CS divided by c, and what the page says of the deals of labels and of arrivals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic.core.rules import AfaCs
from anarchic.core.types import Update, Updates
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.settings import Settings, partition
from anarchic.study.findings import Findings, Outcome
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("figures-5-6")
by_c = names_of("figures-5-6", "by_c")


def rule():
    return by_c.DividedByC(AfaCs(m=1, server_lr=1.0, population=2), c=5)


def test_a_visit_of_twice_c_steps_counts_twice():
    update = Update("a", 0, local_steps=10, local_lr=0.5, direction=np.array([2.0]))
    state = rule().receive(rule().init(np.array([10.0])), update)
    assert state.params[0] == 9.0  # 10 - (0.5 * 10/5 * 2) / 2
    assert rule().scale(0.5, 10) == 1.0  # 0.5 * 10/5


def test_a_block_is_folded_as_its_updates_are():
    block = Updates(
        workers=["a", "b"],
        base_versions=np.array([0, 0]),
        local_steps=np.array([10, 1]),
        local_lrs=np.array([0.5, 0.5]),
        directions=np.array([[2.0], [10.0]]),
        samples=np.array([1, 1]),
    )
    state = rule().receive_many(rule().init(np.array([10.0])), block)
    assert state.params[0] == pytest.approx(7.5)  # 10 - 2/2 = 9, then 9 - (2 + 1)/2


def test_uniform_cells_are_those_of_table_1():
    table = {(c.task, c.name): c for c in names_of("table-1").STUDY.cells}
    uniform = [c for c in run.STUDY.cells if c.columns["arrivals"] == "uniform"]
    assert len(uniform) == 13
    assert all(table[c.task, c.name].asked == c.asked for c in uniform)


SELDOM = (8, 9)  # as the probabilities have it


def holders(p, seed):
    """Who holds each label; the deal depends on the number of classes, not on the images."""
    data, parts = partition(Settings(data="digits", workers=10, labels_per_worker=p, seed=seed))
    held = [set(data.y_train[part]) for part in parts]
    return [{worker for worker in range(10) if label in held[worker]} for label in range(10)]


@pytest.mark.parametrize("seed", range(8))
def test_labels_that_only_the_seldom_hold_are_counted(seed):
    assert [w for w, chance in enumerate(run.BIAS) if chance == 0.01] == list(SELDOM)
    alone = [label for label in holders(2, seed) if label <= set(SELDOM)]
    assert run.shared(seed) == len(alone)
    assert len(alone) == {3: 2}.get(seed, len(alone))
    assert len([label for label in holders(1, seed) if label <= set(SELDOM)]) == 2


@pytest.mark.parametrize("seed", [0, 1])
def test_a_label_of_the_seldom_has_a_holder_who_comes_often_in_these_deals(seed):
    others = [label - set(SELDOM) for label in holders(2, seed) if label & set(SELDOM)]
    assert [len(label) for label in others] == [1] * 4
    often = visits() / 10_000
    assert min(often[list(label)].min() for label in others) > 0.5


def test_the_seldom_come_in_7_of_100_rounds():
    seldom = visits()[list(SELDOM)].mean() / 10_000
    assert seldom == pytest.approx(0.07, abs=0.005)
    assert (1 / seldom, seldom / 5) == (pytest.approx(14, abs=1), pytest.approx(0.014, abs=0.001))


def visits():
    """How often each worker comes in 10,000 rounds."""
    table = Sampler(10, 5, ConstantSteps(5), probabilities=run.BIAS).timetable(0, 10_000)
    return np.bincount(table.worker, minlength=10)


def findings(ours):
    """All cells, with the same accuracy for all of a kind of arrivals."""
    return Findings(
        [Outcome(c, [result(c, 0, last10=ours[c.columns["arrivals"]])]) for c in run.STUDY.cells]
    )


def test_afa_cs_stands_beside_afa_cd():
    found = findings({"uniform": 0.9, "biased": 0.7, "biased-afa-cs": 0.6})
    rows = rows_of(run.by_memory(found))
    assert len(rows) == 13
    assert rows[4] == ["CNN", "1", "0.6000", "0.7000", "\N{MINUS SIGN}0.1000"]


def test_what_bias_costs_stands_by_seed():
    found = findings({"uniform": 0.9, "biased": 0.7, "biased-afa-cs": 0.6})
    assert rows_of(run.by_seed(found))[1] == ["CNN", "2", "0.2000"]


def test_what_bias_costs_stands_with_its_error_and_by_deal():
    """Costs of 0.1 with seed 3, which shares two labels, and of 0.02 with the seeds 0 and 1."""
    ours = {"uniform": 0.9, "biased": 0.88}
    outcomes = []
    for cell in run.STUDY.cells:
        if (cell.task, cell.columns["p"]) == ("lr", 2) and cell.columns["arrivals"] in ours:
            value = ours[cell.columns["arrivals"]]
            late = 0.8 if cell.columns["arrivals"] == "biased" else 0.9
            runs = [result(cell, s, last10=late if s == 3 else value) for s in (0, 1, 3)]
            outcomes.append(Outcome(cell, runs))
    deal = rows_of(run.by_deal(Findings(outcomes)))
    assert [run.shared(seed) for seed in (0, 1, 3)] == [0, 0, 2]
    assert deal == [["LR", "0", "2", "0.0200 ± 0.0000"], ["LR", "2", "1", "0.1000"]]
    said = run.shown_by_deal(Findings(outcomes))
    assert said == "0.0200 ± 0.0000 with none (2 seeds), 0.1000 with 2 (1 seed)"
    (row,) = rows_of(run.by_bias(Findings(outcomes)))
    # the mean of .02, .02, .1; deviation .0462 over the root of 3
    assert row == ["LR", "2", "3", "0.0467 ± 0.0267"]


def test_the_second_half_of_the_curve_at_p_1_stands_by_seed():
    (cell,) = (
        c
        for c in run.STUDY.cells
        if (c.task, c.columns["p"], c.columns["arrivals"]) == ("cnn", 1, "biased-afa-cs")
    )
    curve = {"round": [0, 1, 2, 3], "accuracy": [0.1, 0.9, 0.3, 0.5]}
    one = replace(result(cell, 0, last10=0.4), curve=curve)
    rows = rows_of(run.late(Findings([Outcome(cell, [one])])))
    assert rows == [["CNN", "0", "0.4000", "0.3000", "0.5000"]]


def test_runs_that_diverged_are_left_out_of_a_comparison():
    cells = {c.columns["arrivals"]: c for c in run.STUDY.cells if c.task == "cnn"}
    whole = [result(cells["uniform"], seed, last10=ours) for seed, ours in enumerate((0.8, 0.7))]
    short = replace(result(cells["biased"], 1, last10=0.1), stopped_at="diverged")
    lines = [
        Outcome(cells["uniform"], whole),
        Outcome(cells["biased"], [result(cells["biased"], 0, last10=0.75), short]),
    ]
    assert run.gain(Findings(lines), "uniform", "biased") == pytest.approx(0.05)
    assert run.costs(Findings(lines)) == {0: pytest.approx(0.05)}
    none = Findings([lines[0], replace(lines[1], results=[short])])
    assert run.most(none, "uniform", "biased") is None


def test_a_cost_and_a_gain_can_be_missed():
    found = findings({"uniform": 0.7, "biased": 0.7, "biased-afa-cs": 0.7})
    met = [claim.holds(claim.measured(found)) for claim in run.STUDY.claims]
    # No cost at p = 1, none for p >= 2, no gain; CNN twice no gain.
    assert met == [False, True, False, False, True, True, True, False, True, False]


@pytest.mark.parametrize(("ours", "met"), [(0.7, True), (0.75, False), (0.2, False)])
def test_a_collapse_is_not_a_gain_of_nothing(ours, met):
    found = findings({"uniform": 0.7, "biased": 0.7, "biased-afa-cs": ours})
    remedies = [c for c in run.STUDY.claims if c.text.startswith("CNN") and run.GAINS in c.text]
    assert [claim.verdict(found).met for claim in remedies] == [met, met]
