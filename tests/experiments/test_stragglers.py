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
    assert rows[1] == ["exponential", "race", "sync", "40.0", "40.0", "1/2.0", "1/2.0 to 1/2.0"]
    assert rows[2][5] == "1.25"
