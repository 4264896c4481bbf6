from math import inf, sqrt

import pytest

from anarchic.errors import ConfigError
from anarchic.theory import (
    Arrivals,
    Memory,
    Problem,
    corollary_rates,
    general_bound,
    general_conditions,
    general_limits,
    general_rate,
    memory_bound,
    memory_conditions,
    memory_limits,
    memory_rate,
    rounds_needed,
    rounds_until_speed_up,
    uniform_bound,
    uniform_rate,
)
from anarchic.theory.conditions import RateLimits

PROBLEM = Problem(smoothness=1, sigma_local=1, sigma_global=1, gap=1)


def test_rates_of_the_corollaries():
    rates = corollary_rates(rounds=10_000, n=9, local_steps=4)
    assert (rates.server_lr, rates.local_lr) == (6, 0.01)
    assert rates.step == pytest.approx(sqrt(9 * 4 / 10_000))
    with pytest.raises(ConfigError, match="rounds"):
        corollary_rates(rounds=0, n=1, local_steps=1)
    with pytest.raises(ConfigError, match="m=0"):
        uniform_rate(rounds=1, m=0, local_steps=1, staleness=0)
    with pytest.raises(ConfigError, match="workers=0"):
        memory_rate(rounds=1, workers=0, local_steps=1, row_age=0, fresh=0)


def test_terms_by_hand():
    numbers = {"rounds": 100, "m": 5, "local_steps": 5, "staleness": 3}
    terms = {"speed-up": 0.02, "delay": 0.09, "drift": 0.25}
    assert uniform_rate(**numbers) == pytest.approx(terms)
    assert general_rate(**numbers, sigma_global=2) == pytest.approx(terms | {"error ball": 4})
    found = memory_rate(rounds=100, workers=5, local_steps=5, row_age=10, fresh=2)
    assert found == pytest.approx({"speed-up": 0.02, "delay": 0.36, "drift": 0.25})
    assert memory_rate(rounds=1, workers=2, local_steps=1, row_age=inf, fresh=2)["delay"] == 0


def test_the_bounds_at_the_corollaries_rates_are_their_terms_with_constants():
    T, m, K, tau = 10_000, 9, 4, 3
    rates = corollary_rates(rounds=T, n=m, local_steps=K)
    run = Arrivals.steady(workers=9, m=m, rounds=T, staleness=tau, local_steps=K)
    terms = uniform_rate(rounds=T, m=m, local_steps=K, staleness=tau)
    found = uniform_bound(PROBLEM, rates, run)
    # 4 gap + 4 L sigma_L^2, 8 tau^2, 4 (5 / K + 30) K^2
    expected = 8 * terms["speed-up"] + 8 * terms["delay"] + 125 * terms["drift"]
    assert found.total == pytest.approx(expected)
    general = general_bound(PROBLEM, rates, run)
    expected = 8 * terms["speed-up"] + 12 * terms["delay"] + (30 / K + 180) * terms["drift"] + 6
    assert general.total == pytest.approx(expected)


def test_the_corollary_of_theorem_4_has_no_workers_under_its_drift():
    # It prints K^2 / (M T); with the sums of the proof M cancels.
    T, K, tau = 10_000, 4, 3
    for M in (2, 20):
        rates = corollary_rates(rounds=T, n=M, local_steps=K)
        rows = Memory.steady(workers=M, rounds=T, row_age=tau, local_steps=K)
        terms = memory_rate(rounds=T, workers=M, local_steps=K, row_age=tau, fresh=0)
        expected = 8 * terms["speed-up"] + 8 * terms["delay"] + (20 / K + 120) * terms["drift"]
        assert memory_bound(PROBLEM, rates, rows).total == pytest.approx(expected)


def test_linear_speed_up():
    # Four times the workers, or the local steps, in a quarter of the rounds.
    once = uniform_rate(rounds=400, m=2, local_steps=3, staleness=0)["speed-up"]
    assert uniform_rate(rounds=100, m=8, local_steps=3, staleness=0)["speed-up"] == once
    assert uniform_rate(rounds=100, m=2, local_steps=12, staleness=0)["speed-up"] == once


@pytest.mark.parametrize("K", [1, 5])
def test_from_the_rounds_needed_on_the_corollaries_rates_satisfy_the_conditions(K):
    def held(conditions, T, n, run):
        rates = corollary_rates(rounds=T, n=n, local_steps=K)
        return all(condition.holds for condition in conditions(1.0, rates, run))

    run = Arrivals.steady(workers=10, m=4, rounds=1, staleness=3, local_steps=K)
    T = rounds_needed(general_limits(1.0, run), n=4, local_steps=K)
    assert held(general_conditions, T, 4, run)
    assert not held(general_conditions, T - 1, 4, run)
    rows = Memory.steady(workers=10, rounds=1, row_age=8, fresh=2, local_steps=K)
    T = rounds_needed(memory_limits(1.0, rows), n=10, local_steps=K)
    assert held(memory_conditions, T, 10, rows)
    assert not held(memory_conditions, T - 2, 10, rows)
    assert rounds_needed(RateLimits(0.0, 0.0), n=10, local_steps=K) == inf


def test_rounds_until_speed_up_by_hand():
    T = rounds_until_speed_up(n=2, local_steps=3, delay=5)
    assert T == 2 * 3 * 5**4
    terms = uniform_rate(rounds=T, m=2, local_steps=3, staleness=5)
    assert terms["delay"] == pytest.approx(terms["speed-up"])
    T = rounds_until_speed_up(n=2, local_steps=3, delay=0)
    assert T == 2 * 3**5
    terms = uniform_rate(rounds=T, m=2, local_steps=3, staleness=0)
    assert terms["drift"] == pytest.approx(terms["speed-up"])
    assert rounds_until_speed_up(n=2, local_steps=3, delay=inf) == inf
