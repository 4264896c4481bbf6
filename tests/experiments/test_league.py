"""The league's choices, its measure of the end, its ranks and its tables, by numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic.study.cell import Job
from anarchic.study.findings import Findings, Outcome
from anarchic.study.results import Results, result_of
from tests.experiments.run_files import names_of, rows_of

run = names_of("league")
rules, places, ranks, tables = (
    names_of("league", n) for n in ("rules", "places", "ranks", "tables")
)
PLACE = "lr", "two-labels", "biased", "afa-cd"


def results(*found):
    return Results({result.key: result for result in found})


def tried(cell, value, **more):
    return result_of(Job(cell, 0), {"val": value}, **more)


def test_every_rule_has_as_many_tries_and_equal_settings_get_equal_values():
    cells = [c for c in run.cells(results()) if c.task == "lr-search"]
    assert len(cells) == 15 * 2 * 4 * run.BUDGET["lr"]
    of = {
        rule: [c.settings["local_lr"] for c in cells if c.columns["rule"] == rule]
        for rule in rules.RULES
    }
    assert set(map(tuple, of.values())) == {tuple(of["afa-cd"])}


def test_no_try_looks_at_the_seeds_or_the_settings_of_a_final_run():
    study = run.STUDY
    assert not set(study.seeds_of("lr")) & set(study.seeds_of("lr-search"))
    assert len(study.seeds_of("lr")) == 5


def test_the_best_try_is_run_again_once_all_tries_are_known():
    tries, none = run.row(results(), *PLACE)
    assert none == []
    known = [tried(cell, 0.5 + (cell.columns["try"] == 3) / 10) for cell in tries]
    assert run.row(results(*known[:-1]), *PLACE)[1] == []
    (end,) = run.row(results(*known), *PLACE)[1]
    best = tries[3].settings
    assert end.settings["server_lr"] == best["server_lr"]
    assert end.settings["local_lr"] == best["local_lr"]
    assert "val_share" not in end.settings


def test_a_place_counts_once_every_rule_was_searched_there():
    cells = [c for c in run.cells(results()) if c.columns["arrivals"] == "biased" and c.turn == 0]
    tries = [cell for cell in cells if cell.task == "lr-search"]
    known = [tried(cell, 0.5) for cell in tries]
    found = [c for c in run.cells(results(*known)) if c.task == "lr"]
    assert [c.columns["whole"] for c in found] == [True] * 15
    found = [c for c in run.cells(results(*known[:-1])) if c.task == "lr"]
    assert [c.columns["whole"] for c in found] == [False] * 14


def test_a_diverged_try_is_not_chosen_and_a_try_of_other_settings_does_not_count():
    tries, _ = run.row(results(), *PLACE)
    known = [tried(cell, 0.5) for cell in tries]
    lost = tried(tries[0], 0.9, stopped_at="diverged")
    (end,) = run.row(results(*known, lost), *PLACE)[1]
    assert end.columns["rates"]["local_lr"] == tries[1].settings["local_lr"]
    other = replace(known[0], settings={**known[0].settings, "batch": 1})
    assert run.row(results(*known, other), *PLACE)[1] == []
    all_lost = [tried(cell, None, stopped_at="diverged") for cell in tries]
    assert run.row(results(*all_lost), *PLACE)[1] == []


def test_rates_at_an_end_of_their_range_are_named():
    bounds = {"server_lr": (0.01, 10.0), "local_lr": (0.01, 1.0)}
    assert list(rules.at_edge({"server_lr": 9.0, "local_lr": 0.1}, bounds)) == ["server_lr"]
    assert list(rules.at_edge({"server_lr": 1.0, "local_lr": 0.0101}, bounds)) == ["local_lr"]


def ended(rule, accuracies, arrivals="biased"):
    """A final outcome whose runs end with these accuracies, one per seed from 100 on."""
    tries, _ = run.row(results(), "lr", "two-labels", arrivals, rule)
    (end,) = run.row(
        results(*(tried(cell, 0.5) for cell in tries)), "lr", "two-labels", arrivals, rule
    )[1]
    until_s = end.settings["until_s"]
    found = []
    for seed, accuracy in enumerate(accuracies, start=100):
        curve = {
            "virtual_s": [0.0, until_s / 2, until_s * 0.96, until_s * 0.99],
            "updates": [0, 500, 960, 990],
            "accuracy": [0.1, 0.4, accuracy - 0.01, accuracy + 0.01],
        }
        numbers = {"last10": 0.0, "bytes": 1000, "curve": curve}
        found.append(result_of(Job(end, seed), numbers))
    return Outcome(end, found)


def test_the_end_is_the_last_twentieth_of_virtual_time():
    (outcome,) = places.ended(Findings([ended("afa-cd", [0.8])]))
    assert outcome.ours == pytest.approx(0.8)
    (one,) = outcome.results
    early = replace(one, curve={**one.curve, "virtual_s": [0.0, 1.0, 2.0, 3.0]})
    assert places.with_end(early).numbers["end"] == pytest.approx(0.81)  # the last evaluation


def test_a_target_costs_what_was_spent_at_the_first_evaluation_that_reached_it():
    (result,) = ended("afa-cd", [0.8]).results
    hours = result.settings["until_s"] / 2 / 3600
    assert tables.reached(result, 0.4) == pytest.approx((hours, 500, 1.0))  # 2 * 500 * 1000 bytes
    assert tables.reached(result, 0.9) is None


def test_ranks_are_shared_and_losses_are_to_the_best_of_the_place():
    scores = {rule: [0.5, 0.5] for rule in rules.RULES}
    scores |= {"ace": [0.9, 0.9], "mifa": [0.8, 0.8], "area": [0.8, 0.8]}
    place = places.ended(Findings([ended(rule, scores[rule]) for rule in rules.RULES]))
    lost = ranks.behind([place])
    assert lost["ace"] == [0.0]
    assert lost["mifa"] == pytest.approx([0.1])
    found = ranks.ranks({rule: [round(v, 6) for v in lost[rule]] for rule in lost})
    assert (found["ace"], found["mifa"], found["area"]) == ([1.0], [2.5], [2.5])
    assert found["fedavg"] == [9.5]  # twelve share ranks 4 to 15


def ended_with_loss(rule, accuracies):
    """The same with a last run that diverged."""
    whole = ended(rule, accuracies)
    *rest, last = whole.results
    return replace(whole, results=[*rest, replace(last, stopped_at="diverged")])


def test_a_rule_of_which_a_run_diverged_counts_as_0_in_ranks_and_in_claims():
    claims = names_of("league", "claims")
    good = [ended(rule, [0.5, 0.6]) for rule in rules.RULES if rule != "ace"]
    found = places.ended(Findings([*good, ended_with_loss("ace", [0.9, 0.9])]))
    assert found.one(rule="ace").ours == pytest.approx(0.9)
    assert ranks.behind([found])["ace"] == pytest.approx([0.55])
    assert claims._means(found)["ace"] == 0.0
    assert claims.best_less_synchronous(found) == pytest.approx(0.0)


def test_rules_whose_workers_come_when_asked_are_not_advised_where_none_do():
    scores = {rule: [0.5] for rule in rules.RULES} | {"fedvarp": [0.9], "ace": [0.8]}
    for arrivals in ("uniform", "stragglers", "diurnal", "biased"):
        place = places.ended(Findings([ended(r, scores[r], arrivals) for r in rules.RULES]))
        said = ranks.advice({("lr", "two-labels", arrivals): place}, {"lr": "LR"})[0]
        (line,) = (
            text for text in said.splitlines() if text.startswith(f"- **{ranks.KINDS[arrivals]}")
        )
        assert ("FedVARP" in line) == (arrivals in ("uniform", "stragglers"))
        assert "ACE (0.100)" in line


def test_what_a_table_is_worth_stands_with_its_sign_by_place():
    pytest.importorskip("scipy")
    scores = {rule: [0.5, 0.6, 0.7] for rule in rules.RULES} | {"ca2fl": [0.51, 0.62, 0.73]}
    found = places.ended(Findings([ended(rule, scores[rule]) for rule in rules.RULES]))
    every = {("lr", "two-labels", "biased"): found}
    (row,) = rows_of(ranks.worth(every, run.NAMES, run.SKEW_NAMES))
    assert row[:3] == ["LR/MNIST", "Two labels per worker", "biased"]
    assert row[3].startswith("+0.0200 [")
    assert row[4] == "+0.0000 [+0.0000, +0.0000]"


def test_a_task_s_share_of_the_places_and_its_tries_are_told():
    every = {("lr", "a", "uniform"): None, ("cnn", "a", "uniform"): None, ("lr", "b", "x"): None}
    said = ranks.shares(every, run.NAMES, run.BUDGET)
    assert said == (
        "The places by task: LR/MNIST 2 (10 tries per rule), CNN/CIFAR-10 1 (6 tries per rule)."
    )


def test_all_cells_of_the_design_are_counted():
    assert run.STUDY.planned == dict.fromkeys(run.TASKS, 120)


def test_equally_good_tries_and_missing_cells_are_told():
    tries, _ = run.row(results(), *PLACE)
    scores = [0.5] * len(tries)
    scores[2] = scores[5] = 0.8
    known = results(*(tried(cell, score) for cell, score in zip(tries, scores, strict=True)))
    (end,) = run.row(known, *PLACE)[1]
    searched = [Outcome(cell, known.of(cell)) for cell in tries]
    found = Findings([*searched, Outcome(end)])
    assert tables.ties(found, "lr") == [
        "In 1 of 1 searches several tries were equally good, and the first was taken, which is "
        "arbitrary: AFA-CD, two-labels, biased (2 tries at 0.8000)."
    ]
    assert "The design has 30 cells: 2 skews, 1 kinds" in tables.designed(found, "lr", 2)
    every = Findings([ended(rule, [0.5]) for rule in rules.RULES])
    assert tables.designed(every, "lr", 1) == ""


def test_the_table_marks_the_best_and_what_was_not_told_apart_from_it():
    pytest.importorskip("scipy")
    clear = {rule: [0.5, 0.51, 0.49, 0.5, 0.5] for rule in rules.RULES}
    clear |= {"ace": [0.90, 0.91, 0.89, 0.92, 0.88], "mifa": [0.91, 0.90, 0.88, 0.91, 0.89]}
    place = places.ended(Findings([ended(rule, clear[rule]) for rule in rules.RULES]))
    by_name = {row[0]: row[1] for row in rows_of(tables.accuracy_table({"biased": place}))}
    assert by_name["ACE"].startswith("**0.900 ± 0.020")
    assert by_name["MIFA"].endswith(" ?")
    assert by_name["AFA-CD"] == "0.500 ± 0.009"


@pytest.mark.slow
def test_of_equal_rules_hardly_ever_one_is_told_apart():
    """Though the best is found by the same seeds that it is compared by."""
    pytest.importorskip("scipy")
    draw, runs, wrong = np.random.default_rng(0), 60, 0
    for _ in range(runs):
        found = [ended(rule, draw.normal(0.9, 0.01, 5)) for rule in rules.RULES]
        wrong += len(places.level_with_best(places.ended(Findings(found)))) < len(found) - 1
    assert wrong / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def test_a_claim_waits_for_its_results_and_can_fail():
    claims = names_of("league", "claims")
    good = Findings([ended("afa-cs", [0.8, 0.8]), ended("afa-cd", [0.7, 0.7])])
    first = claims.of_task("lr", "LR", "two-labels")[0]
    assert claims.at_end(first).verdict(good).met
    bad = Findings([ended("afa-cs", [0.6, 0.6]), ended("afa-cd", [0.7, 0.7])])
    assert claims.at_end(first).verdict(bad).value == pytest.approx(-0.1)
    assert claims.at_end(first).verdict(bad).met is False
    assert claims.at_end(first).verdict(Findings([ended("afa-cs", [0.6])])).met is None


def test_spread_deals_every_rule_under_every_kind_of_arrivals_once():
    spread = names_of("league", "spread")
    dealt = [(a, rule) for a, names in spread.parts(["x", "y"], 6) for rule in names]
    assert sorted(dealt) == sorted((a, rule) for a in "xy" for rule in rules.RULES)
    counts = [sum(r in rules.EVERY_UPDATE for r in names) for _, names in spread.parts(["x"], 3)]
    assert max(counts) - min(counts) <= 1
