"""How long rounds last under stragglers, when a run has reached its target, and what is said."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic.participation import ConstantSteps, Diurnal, ExponentialTime, Work
from anarchic.sim.run import Run
from anarchic.study.findings import Findings, Outcome
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("stragglers")
claims = names_of("stragglers", "claims")


def round_lengths(table):
    return np.diff(table.version_s, prepend=0.0) / run.VISIT_S


def test_a_picked_round_lasts_as_long_as_the_slowest_of_five():
    table = run.timetable("exponential", "picked", 0, 4000)
    assert round_lengths(table).mean() == pytest.approx(2.283, rel=0.03)  # 1 + 1/2 + ... + 1/5
    assert (table.staleness == 0).all()


def test_a_race_lasts_until_the_fifth_of_ten_and_starts_from_the_last_five_versions():
    table = run.timetable("exponential", "race", 0, 4000)
    assert round_lengths(table).mean() == pytest.approx(0.646, rel=0.03)  # 1/10 + ... + 1/6
    assert np.bincount(table.staleness) / len(table) == pytest.approx([0.2] * 5, abs=0.01)


def test_workers_that_keep_working_make_a_round_in_half_a_visit():
    table = run.timetable("exponential", None, 0, 4000)
    assert round_lengths(table).mean() == pytest.approx(0.5, rel=0.03)


def test_who_is_awake_is_picked_and_the_others_are_waited_for():
    idle = Diurnal(1.0, awake_h=12.0)
    work = Work(ConstantSteps(5), run.VISIT_S / 5, time_distribution=ExponentialTime())
    waits = {}
    for who in ("picked", "awake"):
        table = run.rounds_of(who, idle, work, np.random.default_rng(0), 200)
        table.check()
        waits[who] = round_lengths(table).mean()
    assert waits["picked"] > 2 * waits["awake"]


def metrics(*accuracies):
    return [
        {"round": n, "virtual_s": 900.0 * n, "accuracy": accuracy, "loss": 1.0}
        for n, accuracy in enumerate(accuracies)
    ]


def test_a_run_reaches_85_at_the_first_evaluation_at_or_above_it():
    found = run.read(Run(np.zeros(1), metrics(0.1, 0.84, 0.85, 0.7, 0.9), {}))
    assert (found["rounds_to_85"], found["time_to_85"], found["reached"]) == (2, 1.0, 1.0)


def test_a_run_that_never_does_counts_with_its_length_and_says_so():
    found = run.read(Run(np.zeros(1), metrics(0.1, 0.84, 0.8), {}))
    assert (found["rounds_to_85"], found["reached"]) == (2, 0.0)


def findings(**rounds):
    """All cells take 40 rounds of a visit each, but for an algorithm's own (rounds, visits)."""
    lines = []
    for cell in run.STUDY.cells:
        count, lasts = rounds.get(cell.columns["algorithm"].replace("-", "_"), (40, 1.0))
        numbers = {"rounds_to_85": count, "time_to_85": count * lasts}
        lines.append(Outcome(cell, [result(cell, 0, **numbers)]))
    return Findings(lines)


def test_rounds_and_their_length_stand_beside_each_other_by_reading():
    rows = rows_of(run.readings(findings(race=(40, 1.0), keep_on=(50, 0.5))))
    assert [row[0] for row in rows] == ["exponential", "log-normal", "diurnal"]
    assert all(row[1:] == ["40.0", "50.0", "1.00", "0.50"] for row in rows)


def test_the_ratios_stand_by_algorithm():
    rows = rows_of(run.ratios(findings(race=(40, 0.5), keep_on=(50, 1.0))))
    same = "1/2.0 to 1/2.0"
    assert rows[1] == ["exponential", "race", "sync", "40.0", "40.0", "1/2.0", same, same]
    assert rows[2][5] == "1.25"


def test_an_interval_is_that_of_paired_seeds():
    """Ten seeds; the times of the one are half of those of the other, seed by seed."""
    sync, race = (run.cell("exponential", algorithm) for algorithm in ("sync", "race"))
    base = Outcome(sync, [result(sync, s, time_to_85=10.0 + s) for s in range(10)])
    other = Outcome(race, [result(race, s, time_to_85=(10.0 + s) / 2) for s in range(10)])
    assert claims.interval(other, base) == pytest.approx([0.5, 0.5])
    low, high = claims.interval(base)
    # mean 14.5; its error is 2.872 / 10 ** 0.5 = 0.908
    assert (low, high) == (pytest.approx(14.5 - 1.78, abs=0.1), pytest.approx(14.5 + 1.78, abs=0.1))
    assert claims.outside(14.0, (low, high)) == 0
    assert claims.outside(20.0, (low, high)) == pytest.approx(20 - high)
    assert claims.outside(10.0, (low, high)) == pytest.approx(low - 10)


def test_each_reading_can_meet_and_miss_the_paper():
    """With a seed's numbers an interval is a point: FedAvg takes 46 rounds of a visit each."""

    def met(rounds, lasts):
        both = {"race": (rounds, lasts), "keep_on": (rounds, lasts)}
        found = findings(sync=(46, 1.0), **both)
        readings = claims.of_readings(run.PAPER_ROUNDS, run.PAPER_RATIO)
        return [claim.verdict(found).met for claim in readings[:5]]

    lasts = 46 / 61 / 2.6
    assert met(61, lasts)[:4] == [True] * 4  # the paper's numbers
    assert met(61, 0.9 * lasts) == [True, True, False, True, True]
    assert met(61, 1.0) == [True, True, False, True, False]  # as many rounds, too long
    assert met(70, 0.1) == [True, False, False, False, True]  # more rounds, far faster


def test_no_claim_is_made_of_readings_where_the_paper_has_no_number():
    for claim in run.STUDY.claims:
        beyond = claim.of["workers"] != "exponential"
        assert not (beyond and set(claim.of["algorithm"]) <= {"sync", "race", "keep-on"})
    told = run.ratios(findings(race=(40, 0.5)))
    assert ["log-normal", "race", "sync", "40.0", "40.0", "1/2.0"] in [r[:6] for r in rows_of(told)]
