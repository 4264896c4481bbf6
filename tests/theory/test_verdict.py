from dataclasses import replace

import pytest

from anarchic.errors import ConfigError
from anarchic.theory import (
    KnownNumbers,
    Rates,
    as_dict,
    calculate,
    general_bound,
    judge_general,
    judge_memory,
    judge_uniform,
    memory_bound,
    uniform_bound,
)
from tests.theory.make import PROBLEM, RATES, arrivals, memory


@pytest.mark.parametrize(
    ("judge", "bound", "numbers", "theorem", "n"),
    [
        (judge_general, general_bound, arrivals, 2, 4),
        (judge_uniform, uniform_bound, arrivals, 3, 4),
        (judge_memory, memory_bound, memory, 4, 10),
    ],
)
def test_a_verdict_puts_one_theorem_together(judge, bound, numbers, theorem, n):
    found = judge(PROBLEM, RATES, numbers())
    assert found.theorem == found.bound.theorem == theorem
    assert found.bound == bound(PROBLEM, RATES, numbers())
    assert [c.name for c in found.conditions] == ["drift", "gradient", "step"]
    assert not found.holds
    assert judge(PROBLEM, found.limits.rates(), numbers()).holds
    assert found.corollary.server_lr == pytest.approx((n * 2) ** 0.5)
    T = found.rounds_needed
    fitting = Rates(server_lr=found.corollary.server_lr, local_lr=T**-0.5)
    assert judge(PROBLEM, fitting, numbers()).holds


def test_the_corollaries_are_those_of_the_same_numbers():
    # T = 50, K = 2, tau = 3: 1/sqrt(4 * 2 * 50), 9/50, 4/50
    terms = {"speed-up": 0.05, "delay": 0.18, "drift": 0.08}
    uniform = judge_uniform(PROBLEM, RATES, arrivals())
    assert uniform.rate == pytest.approx(terms)
    assert (uniform.rounds_until_speed_up, uniform.corollary.local_lr) == (648, 50**-0.5)
    general = judge_general(PROBLEM, RATES, arrivals())
    assert general.rate == pytest.approx(terms | {"error ball": 25})
    assert (general.rounds_until_speed_up, general.rounds_needed) == (648, 8641)  # 16 * 540
    # y = L eta eta_L: 100^2 y^2 + y/2 = 1/4 at 1 / (1 + 2 sqrt(10000.25)), and T = M K (L / y)^2.
    late = judge_memory(PROBLEM, RATES, memory(local_steps=1, row_age=100, fresh=0))
    assert late.rounds_needed == pytest.approx(10 * 4 * (1 + 2 * 10_000.25**0.5) ** 2, abs=1)


def test_the_corollary_takes_mean_local_steps():
    mixed = replace(arrivals(), mean_steps=4.6, steps_max=9)
    assert judge_general(PROBLEM, RATES, mixed).corollary.server_lr == pytest.approx(20**0.5)


def test_the_delay_of_theorem_4_is_that_of_late_rows_alone():
    # M K max(((M - m') tau / M)^4, K^4) = 10 * 2 * 3^4
    assert judge_memory(PROBLEM, RATES, memory()).rounds_until_speed_up == 1620
    assert judge_memory(PROBLEM, RATES, memory()).rate["delay"] == pytest.approx(9 / 50)


def test_the_calculator_fills_in_what_is_not_given():
    found = calculate(KnownNumbers(sigma_global=2.0, staleness=3, workers=11))
    assert found.problem.sigma_global == 2
    assert (found.problem.smoothness, found.arrivals.m) == (1, 5)
    assert (found.memory.row_age, found.memory.fresh) == (5, 0)  # 3 + ceil(11 / 5) - 1
    assert found.memory.reuse == 1 / 5  # a row serves 0, 1 or 2 steps before; K = 5
    general, uniform, remembered = found.verdicts
    assert general.rates == general.corollary == uniform.rates
    assert remembered.rates == remembered.corollary
    assert remembered.rates.server_lr == pytest.approx(55**0.5)  # sqrt(M K)
    assert calculate(KnownNumbers(workers=3, m=5)).memory.fresh == 3
    given = calculate(KnownNumbers(row_age=9, fresh=4)).memory
    assert given.delay == pytest.approx(5.4)
    assert given.reuse == pytest.approx(5.4 / 5)


def test_given_rates_are_kept_for_every_theorem():
    found = calculate(KnownNumbers(local_lr=0.5))
    assert {verdict.rates.local_lr for verdict in found.verdicts} == {0.5}
    assert found.verdicts[0].rates.server_lr == 5


def test_records_become_plain_data():
    found = as_dict(judge_memory(PROBLEM, RATES, memory(row_age=float("inf"), fresh=0)))
    assert found["rounds_needed"] is None
    assert found["conditions"][0]["holds"] is True
    assert found["bound"]["alpha_global"] == {"drift": pytest.approx(19.2)}
    assert found["rates"]["step"] == 0.5


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ({"rounds": 5, "staleness": 700}, "In 5 rounds an update is at most 4 versions late"),
        ({"rounds": 5, "staleness": 5}, "staleness=5"),
        ({"m": 3, "row_age": 3, "fresh": 4}, "at most m=3 rows of the memory.*fresh=4"),
        (
            {"m": 3, "row_age": 0, "fresh": 3},
            "at least 3 rounds old, since m=3 updates.*in 4 round",
        ),
        ({"m": 10, "row_age": 0, "staleness": 4}, "at least 4 rounds old, since an update is 4"),
    ],
)
def test_numbers_that_no_run_has_are_refused(numbers, why):
    with pytest.raises(ConfigError, match=why):
        calculate(KnownNumbers(workers=10, **numbers))


def test_the_closest_numbers_that_a_run_can_have():
    assert calculate(KnownNumbers(rounds=5, staleness=4)).arrivals.staleness == 4
    found = calculate(KnownNumbers(workers=10, m=3, row_age=3, fresh=3)).memory
    assert (found.row_age, found.fresh) == (3, 3)
    assert calculate(KnownNumbers(workers=10, m=10, row_age=0)).memory.delay == 0


def test_theorem_3_draws_at_most_all_workers():
    found = calculate(KnownNumbers(workers=10, m=20))
    assert [verdict.theorem for verdict in found.verdicts] == [2, 4]
    assert "m = 20 is more than the 10 that there are" in found.warnings[0]
    every = calculate(KnownNumbers(workers=10, m=10))
    assert [verdict.theorem for verdict in every.verdicts] == [2, 3, 4]
    assert every.warnings == ()
    with pytest.raises(ConfigError, match="Theorem 3 is left out"):
        judge_uniform(PROBLEM, RATES, arrivals(m=11))
