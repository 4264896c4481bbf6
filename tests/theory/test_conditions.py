from dataclasses import replace
from math import inf

import pytest

from anarchic.errors import ConfigError
from anarchic.theory import (
    Rates,
    general_conditions,
    general_limits,
    memory_conditions,
    memory_limits,
    uniform_conditions,
    uniform_limits,
)
from anarchic.theory.conditions import Condition, RateLimits
from tests.theory.make import RATES, arrivals, memory

L = 2.0
THEOREMS = [
    (general_conditions, general_limits, arrivals),
    (uniform_conditions, uniform_limits, arrivals),
    (memory_conditions, memory_limits, memory),
]
every_theorem = pytest.mark.parametrize(("conditions", "limits", "numbers"), THEOREMS)


def values(conditions):
    return {condition.name: condition.value for condition in conditions}


def test_theorem_2_by_hand():
    found = general_conditions(L, RATES, arrivals())
    assert values(found) == pytest.approx(
        {
            "drift": 0.72,  # 6 * 0.01 * (8 - 6 + 1) * 4
            "gradient": 86.4,  # 180 * 0.01 * 4 * 4 * 3
            "step": 56,  # 2 * 1 + 6 * 9 * 1
        }
    )
    assert [condition.limit for condition in found] == [1, 1, 1]
    assert [condition.holds for condition in found] == [True, False, False]


def test_theorem_3_by_hand():
    found = uniform_conditions(L, RATES, arrivals())
    assert values(found) == pytest.approx(
        {
            "drift": 0.72,
            "gradient": 57.6,  # 120 * 4 * 4 * 0.01 * 3
            "step": 19,  # 1 + 2 * 9; printed without the 2, which its proof has until (b9)
        }
    )
    assert [condition.limit for condition in found] == [1, 1, 1 / 20]


def test_theorem_4_by_hand():
    found = memory_conditions(L, RATES, memory())
    assert values(found) == pytest.approx(
        {
            "drift": 0.72,
            "gradient": 28.8,  # 30 * 4 * 0.01 * 6 * 40 / 10
            "step": 9.5,  # (0.5 * 25 * 4 * 36 / 100 + 1) * 0.5
        }
    )
    assert [condition.limit for condition in found] == [1, 1 / 4, 1 / 4]


def test_local_steps_that_differ_count_with_their_worst():
    mixed = replace(arrivals(), steps_max=10, worst_square_steps=30.0)
    assert values(general_conditions(L, RATES, mixed))["gradient"] == pytest.approx(2160)
    assert values(uniform_conditions(L, RATES, mixed))["gradient"] == pytest.approx(432)
    assert values(uniform_conditions(L, RATES, mixed))["drift"] == pytest.approx(41.04)
    rows = replace(memory(), steps_max=10, worst_sum_square_steps=300.0)
    assert values(memory_conditions(L, RATES, rows))["drift"] == pytest.approx(41.04)
    # 30 * 4 * 0.01 * 6 * 300 / 10
    assert values(memory_conditions(L, RATES, rows))["gradient"] == pytest.approx(216)


def test_the_printed_condition_is_kept_beside_the_corrected_one():
    # L eta eta_L = 1/50: 0.02 + 2 * 9 * 0.0004 = 0.0272, printed 0.0236; the limit at M = 20 is
    # 0.025.
    rates = Rates(server_lr=0.1, local_lr=0.1)
    step = uniform_conditions(L, rates, arrivals(workers=20))[2]
    assert (step.value, step.printed.value) == (pytest.approx(0.0272), pytest.approx(0.0236))
    assert (step.limit, step.printed.limit) == (1 / 40, 1 / 40)
    assert (step.holds, step.printed.holds, step.disputed) == (False, True, True)
    agreed = uniform_conditions(L, rates, arrivals())[2]
    assert (agreed.holds, agreed.disputed) == (True, False)


@every_theorem
def test_the_printed_gradient_condition_is_vacuous_without_delay(conditions, limits, numbers):
    delay = "row_age" if numbers is memory else "staleness"
    now = conditions(L, RATES, numbers(**{delay: 0}))[1]
    assert (now.printed.value, now.printed.holds) == (0, True)
    assert now.disputed is not now.holds
    late = conditions(L, RATES, numbers())[1]
    assert late.printed.value == late.value
    assert "max(tau, 1)" in late.formula
    assert "max" not in late.printed.formula


@every_theorem
def test_the_local_rate_is_bounded_without_delay_too(conditions, limits, numbers):
    delay = "row_age" if numbers is memory else "staleness"
    at_once = values(conditions(L, RATES, numbers(**{delay: 0})))["gradient"]
    assert at_once > 0
    assert at_once == values(conditions(L, RATES, numbers(**{delay: 1})))["gradient"]


def test_one_local_step_cannot_drift():
    alone = arrivals(local_steps=1)
    assert values(general_conditions(L, Rates(server_lr=1, local_lr=1e6), alone))["drift"] == 0


def test_theorem_4_without_late_rows_is_that_of_plain_sgd():
    # L eta eta_L / 2 <= 1/4, however old the rows are said to be
    found = memory_conditions(L, RATES, memory(fresh=10))
    assert values(found)["step"] == 0.5
    assert memory_limits(L, memory(fresh=10)).step == pytest.approx(1 / 4)


def test_limits_by_hand():
    # 6 * 9 y^2 + 2 y = 1 at y = 1 / (1 + sqrt(55)); 1 / (2 * 2 * sqrt(540))
    found = general_limits(L, arrivals())
    assert found.step == pytest.approx(1 / (1 + 55**0.5) / 2)
    assert found.local_lr == pytest.approx(0.25 / 540**0.5)
    # without delay: 2 y = 1, y = 1 / (2 M), y / 2 = 1/4
    assert general_limits(L, arrivals(staleness=0)).step == pytest.approx(1 / 4)
    assert uniform_limits(L, arrivals(staleness=0)).step == pytest.approx(1 / 40)
    assert memory_limits(L, memory(row_age=0)).step == pytest.approx(1 / 4)


def test_one_long_visit_among_many_short_ones_limits_the_local_rate_by_drift():
    # K = 10 once and 1 otherwise: 6 (200 - 30 + 1) = 1026 against 120 K-hat^2 = 132 and 1020.
    by_drift = pytest.approx(1 / (L * 1026**0.5))
    mixed = replace(arrivals(staleness=1), steps_max=10, worst_square_steps=1.1)
    assert uniform_limits(L, mixed).local_lr == by_drift
    rows = replace(memory(row_age=1), steps_max=10, worst_sum_square_steps=85.0)
    assert memory_limits(L, rows).local_lr == by_drift
    assert memory_limits(L, replace(rows, worst_sum_square_steps=86.0)).local_lr < 1 / (
        L * 1031**0.5
    )
    # Theorem 2 takes the largest K everywhere.
    assert general_limits(L, mixed).local_lr == pytest.approx(1 / (L * 18000**0.5))
    for K in (1, 2, 10, 1000):
        drift, gradient, _ = general_conditions(L, RATES, arrivals(staleness=0, local_steps=K))
        assert drift.value < gradient.value


@every_theorem
@pytest.mark.parametrize("steps", [1, 2, 50])
def test_rates_within_the_limits_satisfy_the_conditions_and_others_do_not(
    conditions, limits, numbers, steps
):
    run = numbers(local_steps=steps)
    found = limits(L, run)
    assert all(condition.holds for condition in conditions(L, found.rates(), run))
    too_much = found.rates(share=1.01)
    broken = [c.name for c in conditions(L, too_much, run) if not c.holds]
    assert {"gradient", "step"} <= set(broken)


@every_theorem
def test_more_delay_smoothness_and_steps_allow_less(conditions, limits, numbers):
    later = {"row_age": 9} if numbers is memory else {"staleness": 9}
    less = limits(L, numbers())
    assert limits(L, numbers(**later)).step < less.step
    assert limits(L, numbers(**later)).local_lr < less.local_lr
    assert limits(2 * L, numbers()).step == less.step / 2
    assert limits(L, numbers(local_steps=4)).local_lr < less.local_lr


def test_a_worker_that_never_reports_allows_no_rates():
    silent = memory(row_age=inf, fresh=0)
    found = memory_limits(L, silent)
    assert (found.local_lr, found.step) == (0, 0)
    assert not any(condition.holds for condition in memory_conditions(L, RATES, silent)[1:])
    with pytest.raises(ConfigError, match="never reported"):
        found.rates()


def test_margins_and_strictness():
    assert Condition("a", "", 0.25, 1.0).margin == 0.75
    assert Condition("a", "", 3.0, 1.0).margin == -2
    assert Condition("a", "", 3.0, 4.0).margin == 0.25
    assert Condition("a", "", 1.0, 1.0).holds
    assert not Condition("a", "", 1.0, 1.0, strict=True).holds
    assert RateLimits(0.1, 0.2).rates(share=1.0).step == pytest.approx(0.2)
