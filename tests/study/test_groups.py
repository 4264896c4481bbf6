"""Groups of runs, by hand: final, best, area, time to a target."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import numpy as np
import pytest

from anarchic.errors import ConfigError, RunError
from anarchic.study import Asked, Group, Outcome, Result, groups_of, load_sweep, sweep
from anarchic.study.bands import curves_of, spread
from anarchic.study.groups import best_of, by_seed, bytes_per_update, common_end
from anarchic.study.publish import entry, lines_of, write_csv, write_latex
from tests.study.make import cell


def ran(seed=0, accuracy=(0.0, 0.5, 1.0), stopped_at="rounds", **numbers):
    curve = {
        "round": list(range(0, 2 * len(accuracy), 2)),
        "updates": list(range(0, 10 * len(accuracy), 10)),
        "accuracy": list(accuracy),
        "loss": [1 - a for a in accuracy],
    }
    found = {"model_bytes": 100, "model": f"{accuracy}", **numbers}
    settings = {"local_rule": "sgd"}
    return Result("t", "c", seed, found, settings, curve=curve, stopped_at=stopped_at)


def test_measures_by_hand():
    run = ran(accuracy=(0.0, 0.8, 0.6))  # at rounds 0, 2, 4
    asked = Asked(target=0.7)
    assert asked.value(run, "final") == 0.6
    assert asked.value(run, "best") == 0.8
    # (0 + 0.8) / 2 * 2 + (0.8 + 0.6) / 2 * 2 = 0.8 + 1.4, over 4 rounds
    assert asked.value(run, "area") == pytest.approx(0.55)
    # up to round 3, where the line is at 0.7: 0.8 + 0.75, over 3 rounds
    assert asked.value(run, "area", until=3) == pytest.approx(1.55 / 3)
    assert asked.value(run, "to_target") == 2
    assert Asked(target=0.9).value(run, "to_target") is None
    assert Asked().value(run, "to_target") is None


def test_a_loss_is_better_if_it_is_lower():
    run = ran(accuracy=(0.0, 0.8, 0.6))
    asked = Asked("loss", target=0.3)
    assert asked.value(run, "best") == pytest.approx(0.2)
    assert asked.value(run, "to_target") == 2


def test_axes_are_rounds_updates_and_bytes():
    run = ran()
    assert Asked(against="updates").points(run)[:, 0].tolist() == [0, 10, 20]
    # down and up, 100 bytes each
    assert Asked(against="bytes").points(run)[:, 0].tolist() == [0, 2000, 4000]
    assert len(Asked(against="virtual_s").points(run)) == 0
    scaffold = replace(run, settings={"local_rule": "scaffold"})  # its control travels as well
    assert bytes_per_update(scaffold) == 400


def test_refused_updates_cost_bytes_too():
    run = ran()
    refusing = replace(run, curve={**run.curve, "refused": [0, 3, None]})
    # (10 + 3) visits of 200 bytes; where no count is known, the folded ones
    assert Asked(against="bytes").points(refusing)[:, 0].tolist() == [0, 2600, 4000]
    assert Asked(against="updates").points(refusing)[:, 0].tolist() == [0, 10, 20]


def test_bands_by_hand():
    values = [1.0, 2.0, 6.0]  # mean 3, deviation sqrt((4 + 1 + 9) / 2)
    assert spread(values, "sd") == pytest.approx((7**0.5,) * 2)
    assert spread(values, "se") == pytest.approx(((7 / 3) ** 0.5,) * 2)
    assert spread(values, "range") == (2.0, 3.0)
    assert spread(values, "none") == spread([1.0], "sd") == (0.0, 0.0)
    pytest.importorskip("scipy")
    half = 4.302652729911275 * (7 / 3) ** 0.5  # Student's t with 2 degrees
    assert spread(values, "ci") == pytest.approx((half, half))


def test_curves_are_read_where_all_runs_are_known():
    short = ran(1, accuracy=(0.2, 0.6))
    x, values = curves_of(Group("g", [ran(0), short]), Asked())
    assert (x[0], x[-1]) == (0, 2)
    assert values[:, -1].tolist() == pytest.approx([0.5, 0.6])
    assert common_end([Group("g", [ran(0), short])], Asked()) == 2


def test_lost_runs_are_counted_and_no_part_of_the_mean():
    group = Group("g", [ran(0), ran(1, stopped_at="diverged"), ran(2, stopped_at="failed")])
    (line,) = lines_of([group], Asked())
    assert line.runs == "3, 1 diverged, 1 failed"
    assert line.values["final"] == [1.0]
    with pytest.raises(ConfigError, match="several runs with seed 0"):
        by_seed(Group("g", [ran(0), ran(0)]), Asked(), "final", None)
    found = by_seed(group, Asked(), "final", None)
    assert found[0] == 1.0
    assert np.isnan(found[1])
    assert by_seed(group, Asked(), "final", 0.1) == {0: 1.0, 1: 0.1, 2: 0.1}


def test_the_best_is_chosen_by_validation_data_and_without_lost_runs():
    def outcome(name, *runs):
        return Outcome(cell(name), list(runs))

    good, better = outcome("a", ran(0, (0.0, 0.7))), outcome("b", ran(0, (0.0, 0.8)))
    assert best_of([good, better], "accuracy") is better
    lost = outcome("c", ran(0, (0.0, 0.9)), ran(1, stopped_at="diverged"))
    assert best_of([good, better, lost], "accuracy") is better
    validated = [
        Outcome(
            o.cell, [replace(r, curve={**r.curve, "val_accuracy": [0.0, v]}) for r in o.results]
        )
        for o, v in ((good, 0.9), (better, 0.5))
    ]
    assert best_of(validated, "accuracy").cell.name == "a"


SMALL = {"rounds": 6, "batch": 8, "local_steps": 2, "eval_every": 3}


@pytest.fixture
def swept(tmp_path):
    return sweep(SMALL, rule=["afa-cd", "fedbuff"], server_lr=[0.5, 1.0], seed=range(2),
                 out=tmp_path / "s")  # fmt: skip


def test_runs_are_grouped_by_settings(swept):
    assert [g.label for g in groups_of([swept], Asked())] == [
        "afa-cd, server_lr=0.5", "afa-cd, server_lr=1",
        "fedbuff, server_lr=0.5", "fedbuff, server_lr=1",
    ]  # fmt: skip
    best = groups_of([swept], Asked(), by=["rule"])
    assert [(g.label, len(g.runs)) for g in best] == [("afa-cd", 2), ("fedbuff", 2)]
    assert all(g.chosen.startswith("server_lr=") for g in best)
    every = groups_of([swept], Asked(), by=["rule"], over="all")
    assert [(len(g.runs), g.chosen) for g in every] == [(4, ""), (4, "")]


def test_no_best_is_taken_across_other_conditions(tmp_path):
    found = sweep(
        {**SMALL, "rounds": 3}, data=["digits", "synthetic"], server_lr=[0.5, 1.0],
        max_staleness=[0, 2], out=tmp_path,
    )  # fmt: skip
    said = r"The group afa-cd has .* differ in data, max_staleness.*--group-by rule,data,max_stal"
    with pytest.raises(ConfigError, match=said):
        groups_of([found], Asked(), by=["rule"])
    apart = groups_of([found], Asked(), by=["rule", "data", "max_staleness"])
    assert [g.label for g in apart] == [
        "afa-cd, digits, max_staleness=0", "afa-cd, digits, max_staleness=2",
        "afa-cd, synthetic, max_staleness=0", "afa-cd, synthetic, max_staleness=2",
    ]  # fmt: skip
    assert {g.chosen.partition("=")[0] for g in apart} == {"server_lr"}
    assert [len(g.runs) for g in groups_of([found], Asked(), by=["rule"], over="all")] == [8]
    assert len(groups_of([found], Asked())) == 8


def test_what_was_chosen_is_told_also_where_a_sweep_has_one_value_of_it(swept, tmp_path):
    other = sweep({**SMALL, "local_lr": 0.2}, rule=["afa-cd"], seed=range(2), out=tmp_path / "o")
    (best, _) = groups_of([swept, other], Asked(), by=["rule"])
    assert [part.partition("=")[0] for part in best.chosen.split(", ")] == ["server_lr", "local_lr"]


def test_nothing_is_grouped_by_seed(swept):
    with pytest.raises(ConfigError, match="nothing can be grouped by seed"):
        groups_of([swept], Asked(), by=["seed"])


def test_sweeps_are_compared_together(swept, tmp_path):
    more = {"rule": ["afa-cd"], "server_lr": [0.5], "out": tmp_path / "more"}
    sweep(SMALL, **more, seed=range(1, 4))
    both = [swept, load_sweep(tmp_path / "more")]
    first, *_ = groups_of(both, Asked())
    assert [run.seed for run in first.runs] == [0, 1, 2, 3]  # seed 1 is in both, and equal
    path = tmp_path / "more" / "results.jsonl"
    path.write_text(re.sub('"model": "[0-9a-f]{64}"', '"model": "another"', path.read_text()))
    with pytest.raises(RunError, match=r"different results of .* with seed 1"):
        groups_of(both, Asked())


def test_the_table_is_written_for_a_paper(swept, tmp_path):
    asked = Asked(target=0.3)
    lines = lines_of(groups_of([swept], asked, by=["rule"]), asked)
    text = write_latex(lines, tmp_path / "deep" / "t.tex", asked, "sd").read_text()
    assert text.startswith("% accuracy against round: mean and one standard deviation")
    assert r"server\_lr=" in text
    assert r"$\pm$" in text
    assert text.count(r"\\") == 3
    with open(write_csv(lines, tmp_path / "t.csv", asked), newline="") as file:
        rows = list(csv.DictReader(file))
    finals = [run.curve["accuracy"][-1] for run in lines[0].group.runs]
    assert float(rows[0]["final_mean"]) == pytest.approx(np.mean(finals))
    assert float(rows[0]["final_sd"]) == pytest.approx(np.std(finals, ddof=1))
    assert entry(lines[0], "final", "none") == f"{np.mean(finals):.4g}"


def test_those_who_missed_a_target_are_counted():
    asked = Asked(target=0.9)
    (line,) = lines_of([Group("g", [ran(0), ran(1, (0.0, 0.1, 0.2))])], asked)
    assert entry(line, "to_target", "sd") == "4 (1 of 2)"


def test_a_figure_has_a_line_and_a_band_per_group(swept, tmp_path):
    pytest.importorskip("matplotlib")
    from anarchic.study.bands import plot_groups

    groups = groups_of([swept], Asked(), by=["rule"])
    path = plot_groups(groups, tmp_path / "f.svg", Asked(), "range")
    assert path.read_text().startswith("<?xml")
    with pytest.raises(RunError, match="No run has accuracy against virtual_s"):
        plot_groups(groups, tmp_path / "g.svg", Asked(against="virtual_s"))
