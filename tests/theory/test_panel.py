from __future__ import annotations

from math import sqrt

import pytest

from anarchic.participation import ConstantSteps, Sampler
from anarchic.theory import Rates, arrivals_of, general_conditions, memory_conditions, memory_of
from anarchic.theory.panel import panel


def table(workers=10, m=5, late=4, rounds=200, steps=5):
    return Sampler(workers, m, ConstantSteps(steps), max_staleness=late).timetable(0, rounds)


def test_the_largest_smoothness_by_hand():
    # Theorem 2 without delay: 180 (eta_L K L)^2 < 1 and 2 L eta eta_L <= 1.
    found = panel(table(late=0), "afa-cd", server_lr=2.0, local_lr=0.01)
    assert found["limits"]["local"] == pytest.approx(1 / (0.01 * 5 * sqrt(180)), rel=1e-4)
    assert found["limits"]["step"] == pytest.approx(1 / (2 * 2.0 * 0.01), rel=1e-4)
    assert found["largest_smoothness"] == found["limits"]["local"]


def test_just_below_it_all_conditions_hold_and_just_above_one_does_not():
    made, rates = table(), Rates(server_lr=1.5, local_lr=0.02)
    largest = panel(made, "afa-cd", 1.5, 0.02)["largest_smoothness"]
    arrivals = arrivals_of(made)
    assert all(c.holds for c in general_conditions(0.999 * largest, rates, arrivals))
    assert not all(c.holds for c in general_conditions(1.001 * largest, rates, arrivals))


def test_afa_cs_is_judged_by_the_age_of_its_rows():
    made, rates = table(), Rates(server_lr=1.0, local_lr=0.02)
    found = panel(made, "afa-cs", 1.0, 0.02)
    memory = memory_of(made)
    assert (found["theorem"], found["row_age"]) == (4, memory.row_age)
    largest = found["largest_smoothness"]
    assert all(c.holds for c in memory_conditions(0.999 * largest, rates, memory))
    assert not all(c.holds for c in memory_conditions(1.001 * largest, rates, memory))


def test_other_rules_are_counted_but_not_judged():
    found = panel(table(), "fedbuff", 1.0, 0.02)
    assert found["theorem"] is None
    assert "largest_smoothness" not in found
    assert (found["staleness"], found["steps"]) == (4, [5] * 5)
