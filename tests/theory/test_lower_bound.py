import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, Experiment, LocalWork
from anarchic.errors import ConfigError
from anarchic.sim.engine import Engine
from anarchic.theory import (
    Arrivals,
    Problem,
    Rates,
    general_bound,
    general_conditions,
    lower_bound,
    uniform_bound,
    uniform_conditions,
)
from anarchic.train.quadratic import QuadraticTask

SIGMA = 3.0
RATES = Rates(server_lr=2.0, local_lr=0.05)


def models(rule, table, *, start=2.0, noise=0.0, rates=RATES):
    """x_0 .. x_T of a run on the two functions of Theorem 1."""
    task = QuadraticTask(lower_bound.worst_case(SIGMA, noise), np.array([start]))
    engine = Engine(Experiment(task, rule, table, LocalWork(lr=rates.local_lr)))
    seen = [float(task.init()[0])]
    while engine.version < table.rounds:
        engine.next_version()
        seen.append(float(task.get(engine.state.params)[0]))
    return np.array(seen)


def test_the_functions_are_those_of_the_proof():
    functions = lower_bound.worst_case(SIGMA)
    for x in (-2.0, 0.0, 5.0):
        at = np.array([x])
        first, second = (float(functions.gradient(at, worker)[0]) for worker in (0, 1))
        assert (first, second) == (2 * (x + 1.5), 2 * (x - 1.5))  # G = sigma_G / 2
        mean = (first + second) / 2
        assert lower_bound.squared_gradient(x) == mean**2
        assert (first - mean) ** 2 == (second - mean) ** 2 == SIGMA**2
        assert functions.loss(at) == pytest.approx(x**2 + 1.5**2)


@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize("m", [1, 3])
def test_the_path_and_the_error_ball_are_the_closed_form_to_rounding(local_steps, m):
    table = lower_bound.arrivals_of_one(200, m=m, local_steps=local_steps)
    seen = models(AfaCd(m, RATES.server_lr), table)
    left = (1 - lower_bound.pull(RATES, local_steps)) ** np.arange(201)
    expected = (2.0 + SIGMA / 2) * left - SIGMA / 2
    np.testing.assert_allclose(seen, expected, rtol=1e-12)
    last = lower_bound.squared_gradient(seen[-1])
    assert last == pytest.approx(lower_bound.error_ball(SIGMA), rel=1e-12)
    assert last == pytest.approx(SIGMA**2, rel=1e-12)


def test_a_memory_does_not_help_while_the_second_worker_is_silent():
    silent = models(AfaCs(1, RATES.server_lr, population=2), lower_bound.arrivals_of_one(400))
    assert lower_bound.squared_gradient(silent[-1]) == pytest.approx(SIGMA**2, rel=1e-12)


def test_afa_cs_leaves_the_ball_once_both_report():
    table = lower_bound.arrivals_of_one(600, share=0.9, seed=1)
    with_memory = models(AfaCs(1, RATES.server_lr, population=2), table)
    assert lower_bound.squared_gradient(with_memory[-1]) < 1e-12
    without = lower_bound.squared_gradient(models(AfaCd(1, RATES.server_lr), table)[-300:]).mean()
    assert without > 0.5 * lower_bound.error_ball(SIGMA, share=0.9)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "m"), [(0.5, 1), (0.8, 1), (0.8, 3)])
def test_the_error_of_any_share_is_the_closed_form(share, m):
    table = lower_bound.arrivals_of_one(2500, share=share, m=m, seed=3)
    step = lower_bound.pull(RATES, 1)
    assert step == pytest.approx(0.2)  # 2 eta eta_L
    seen = lower_bound.squared_gradient(models(AfaCd(m, RATES.server_lr), table)[200:])
    expected = lower_bound.error_ball(SIGMA, share=share, step=step, m=m)
    assert seen.mean() == pytest.approx(expected, rel=0.15)


def test_error_balls_by_hand():
    assert lower_bound.error_ball(2.0, share=0.75) == 1.0  # (1/2)^2 * 4
    assert lower_bound.error_ball(2.0, share=0.5, step=1.0) == 4.0
    assert lower_bound.error_ball(2.0, share=0.5, step=1.0, m=4) == 1.0
    with pytest.raises(ConfigError, match="probability"):
        lower_bound.error_ball(1.0, share=1.5)
    with pytest.raises(ConfigError, match="diverges"):
        lower_bound.error_ball(1.0, step=2.0)
    with pytest.raises(ConfigError, match="m=0"):
        lower_bound.error_ball(1.0, m=0)
    with pytest.raises(ConfigError, match="local_steps=0"):
        lower_bound.pull(RATES, 0)


@pytest.mark.slow
def test_theorem_2_allows_for_the_ball():
    table = lower_bound.arrivals_of_one(2000)
    rates = Rates(server_lr=4.0, local_lr=0.03)
    run = Arrivals.steady(workers=2, m=1, rounds=2000)
    assert all(c.holds for c in general_conditions(lower_bound.SMOOTHNESS, rates, run))
    seen = lower_bound.squared_gradient(models(AfaCd(1, rates.server_lr), table, rates=rates)[:-1])
    problem = Problem(smoothness=2, sigma_local=0, sigma_global=SIGMA, gap=4.0)
    assert seen.mean() < general_bound(problem, rates, run).total


@pytest.mark.slow
def test_theorem_3_is_false_without_what_it_leaves_out():
    # Workers equally likely, exact gradients, no delay, K = 1, all conditions satisfied; the error
    # is known in closed form, and Theorem 3's bound falls below it as eta_L does at the same step.
    rates, rounds = Rates(server_lr=125.0, local_lr=0.001), 20_000
    run = Arrivals.steady(workers=2, m=1, rounds=rounds)
    assert all(c.holds for c in uniform_conditions(lower_bound.SMOOTHNESS, rates, run))
    problem = Problem(smoothness=2, sigma_local=0, sigma_global=SIGMA, gap=0.0)
    bound = uniform_bound(problem, rates, run)
    error = lower_bound.error_ball(SIGMA, share=0.5, step=lower_bound.pull(rates, 1))
    assert error == pytest.approx(SIGMA**2 / 7)  # step = 1/4: (1/4) / (7/4)
    assert error > 100 * bound.total
    assert error < bound.corrected
    table = lower_bound.arrivals_of_one(rounds // 10, share=0.5, seed=5)
    seen = models(AfaCd(1, rates.server_lr), table, start=0.0, rates=rates)
    assert lower_bound.squared_gradient(seen).mean() == pytest.approx(error, rel=0.15)
