from dataclasses import replace
from math import inf

import numpy as np
import pytest

from anarchic import AfaCs, Update
from anarchic.theory import (
    Memory,
    Problem,
    Rates,
    general_bound,
    memory_bound,
    memory_conditions,
    sampling_variance,
    uniform_bound,
)
from tests.theory.make import PROBLEM, RATES, arrivals, memory

THEOREMS = [(general_bound, arrivals), (uniform_bound, arrivals), (memory_bound, memory)]
every_theorem = pytest.mark.parametrize(("bound", "numbers"), THEOREMS)


def test_theorem_2_by_hand():
    found = general_bound(PROBLEM, RATES, arrivals())
    # L eta eta_L = 1, 1/K/m = 1/8, tau^2 = 9, L^2 eta_L^2 = 0.04
    assert found.alpha_local == pytest.approx({"step": 1 / 8, "delay": 27 / 8, "drift": 0.6})
    assert found.alpha_global == pytest.approx({"arrivals": 1.5, "drift": 7.2})  # 45 * 0.04 * 4
    assert found.start == pytest.approx(28 / 25)
    assert found.noise == pytest.approx(4 * 4.1 * 9)
    assert found.heterogeneity == pytest.approx(4 * 8.7 * 25)
    assert found.floor == 150  # 6 * 25
    assert found.total == pytest.approx(1.12 + 147.6 + 870)
    assert found.theorem == 2


def test_theorem_3_by_hand():
    found = uniform_bound(PROBLEM, RATES, arrivals())
    assert found.alpha_local == pytest.approx({"step": 1 / 8, "delay": 18 / 8, "drift": 0.4})
    assert found.alpha_global == pytest.approx({"drift": 4.8})  # 30 * 0.04 * 4
    assert found.total == pytest.approx(1.12 + 4 * 2.775 * 9 + 4 * 4.8 * 25)
    assert found.floor == 0
    # 12 (1 + 2 * 9) (10 - 4) / (4 * 9) 25
    assert found.left_out == pytest.approx(950)
    assert found.corrected == pytest.approx(found.total + 950)


def test_theorem_4_by_hand():
    found = memory_bound(PROBLEM, RATES, memory())
    # (4/10) [5 * 0.04 * 20 + (2 * 9 + 1) / 2]: K-bar = 10 * 2 is a sum
    assert found.alpha_local == pytest.approx({"step": 0.2, "delay": 3.6, "drift": 1.6})
    assert found.alpha_global == pytest.approx({"drift": 19.2})  # 120 * 0.04 * 40 / 10
    assert found.start == pytest.approx(28 / 25)  # 4 (f(x_0) - f(x_T)), not 4 f(x_0) - f(x_T)
    assert found.total == pytest.approx(1.12 + 5.4 * 9 + 19.2 * 25)
    assert found.left_out == pytest.approx(4 * 1 / 10 * 3 / 2 * 9)  # 3 earlier steps at most


def test_local_steps_that_differ_enter_by_their_means():
    mixed = replace(arrivals(), inverse_steps=0.5, mean_steps=3.0, square_steps=11.0)
    found = general_bound(PROBLEM, RATES, mixed)
    assert found.alpha_local == pytest.approx({"step": 0.125, "delay": 3.375, "drift": 0.9})
    assert found.alpha_global["drift"] == pytest.approx(19.8)
    found = uniform_bound(PROBLEM, RATES, mixed)
    assert found.alpha_local == pytest.approx({"step": 0.125, "delay": 2.25, "drift": 0.6})
    assert found.alpha_global["drift"] == pytest.approx(13.2)
    # (4/10) [5 * 0.04 * 30 + (2 * 9 + 1) 0.6], 120 * 0.04 * 120 / 10
    rows = replace(memory(), inverse_steps=0.6, sum_steps=30.0, sum_square_steps=120.0)
    found = memory_bound(PROBLEM, RATES, rows)
    assert found.alpha_local == pytest.approx({"step": 0.24, "delay": 4.32, "drift": 2.4})
    assert found.alpha_global == pytest.approx({"drift": 57.6})


@every_theorem
@pytest.mark.parametrize("name", ["smoothness", "sigma_local", "sigma_global", "gap"])
def test_a_harder_problem_has_a_larger_bound(bound, numbers, name):
    harder = replace(PROBLEM, **{name: 2 * getattr(PROBLEM, name)})
    assert bound(harder, RATES, numbers()).total > bound(PROBLEM, RATES, numbers()).total


@every_theorem
def test_the_bound_falls_with_rounds_and_rises_with_delay(bound, numbers):
    delay = "row_age" if numbers is memory else "staleness"
    by_rounds = [bound(PROBLEM, RATES, numbers(rounds=T)).total for T in (10, 100, 1000)]
    assert by_rounds == sorted(by_rounds, reverse=True)
    by_delay = [bound(PROBLEM, RATES, numbers(**{delay: tau})).total for tau in (0, 1, 5, 50)]
    assert by_delay == sorted(by_delay)
    assert len(set(by_delay)) == 4


def test_more_updates_per_step_or_more_fresh_rows_lower_the_bound():
    for bound in (general_bound, uniform_bound):
        by_m = [bound(PROBLEM, RATES, arrivals(m=m)).total for m in (1, 2, 8)]
        assert by_m == sorted(by_m, reverse=True)
    by_fresh = [memory_bound(PROBLEM, RATES, memory(fresh=n)).total for n in (0, 5, 10)]
    assert by_fresh == sorted(by_fresh, reverse=True)


def test_the_bound_without_delay_and_heterogeneity_by_hand():
    alike = replace(PROBLEM, sigma_global=0)
    now = arrivals(staleness=0)
    for bound in (general_bound, uniform_bound):
        found = bound(alike, RATES, now)
        assert (found.alpha_local["delay"], found.heterogeneity, found.floor) == (0, 0, 0)
        assert found.left_out == 0
    assert general_bound(PROBLEM, RATES, now).floor == 150  # delay has no part in it


def test_theorem_4_with_every_row_fresh_has_no_delay_term():
    fresh, at_once = memory(fresh=10), memory(row_age=0)
    for numbers in (fresh, at_once):
        assert memory_bound(PROBLEM, RATES, numbers).alpha_local["delay"] == 0
    found = memory_bound(PROBLEM, RATES, fresh)
    # The noise of a mean of M: 4 L eta eta_L / (M K)
    assert found.alpha_local["step"] == pytest.approx(4 * 1 / (10 * 2))


def test_a_worker_that_never_reports_leaves_no_bound():
    silent = memory(row_age=inf, fresh=0)
    assert memory_bound(PROBLEM, RATES, silent).total == inf
    exact = replace(PROBLEM, sigma_local=0)
    assert memory_bound(exact, RATES, silent).noise == 0


def test_what_theorem_3_leaves_out_is_the_variance_of_a_draw():
    problem = Problem(smoothness=1, sigma_local=0, sigma_global=1, gap=0)
    rates = Rates(server_lr=1, local_lr=1 / 12)
    now = {"staleness": 0, "workers": 5}
    found = [sampling_variance(problem, rates, arrivals(m=m, **now)) for m in (1, 2, 5, 9)]
    assert found == pytest.approx([1, 3 / 8, 0, 0])  # (M - m) / (m (M - 1))


def test_theorem_4_as_printed_is_broken_by_20_workers_in_turn():
    # 20 workers report in turn, one a round, on f = x^2 / 2 from its optimum, in 400 dimensions
    # that stand for as many runs.
    M, T = 20, 12_000
    rates, rng = Rates(server_lr=10, local_lr=1e-4), np.random.default_rng(3)
    rows = Memory.steady(workers=M, rounds=T, row_age=M - 1, fresh=1, used=(M - 1) / 2)
    assert all(condition.holds for condition in memory_conditions(1, rates, rows))
    rule = AfaCs(1, rates.server_lr, population=M)
    state, squares = rule.init(np.zeros(400)), 0.0
    for t in range(T):
        squares += float(state.params @ state.params) / 400
        drawn = state.params + rng.normal(size=400)
        state = rule.receive(state, Update(f"{t % M}", t, 1, rates.local_lr, drawn))
    measured = squares / T
    bound = memory_bound(Problem(smoothness=1, sigma_local=1, sigma_global=0, gap=0), rates, rows)
    assert measured == pytest.approx(rates.step / 2, rel=0.1)  # L eta eta_L sigma_L^2 / (2 m K)
    assert measured > 1.2 * bound.total
    assert measured < bound.corrected
