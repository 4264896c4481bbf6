"""Runs on quadratics whose constants are known: the measured error lies below the bound."""

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, Experiment, LocalWork
from anarchic.data import Quadratics
from anarchic.participation import ConstantSteps, Sampler, UniformSteps
from anarchic.sim.engine import Engine
from anarchic.theory import (
    Problem,
    arrivals_of,
    general_bound,
    general_conditions,
    general_limits,
    memory_bound,
    memory_conditions,
    memory_limits,
    memory_of,
    uniform_bound,
    uniform_conditions,
    uniform_limits,
)
from anarchic.train.quadratic import QuadraticTask

WORKERS, M, DIM, ROUNDS = 6, 3, 4, 150
CURVATURES = np.array([0.3, 1.0, 1.5, 2.0])
START = np.full(DIM, 4.0)
CASES = [
    (3, 3.0),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0, 0.0), (0, 3.0), (3, 0.0))),
]
PAPER_LIKE = (0.35, 0.35, 0.1, 0.1, 0.05, 0.05)


def functions(noise):
    """The same curvatures for all, so that the workers' gradients differ by the same everywhere."""
    optima = np.random.default_rng(7).normal(size=(WORKERS, DIM))
    return Quadratics(np.tile(CURVATURES, (WORKERS, 1)), optima, noise)


def problem(noise, start):
    f = functions(noise)
    apart = CURVATURES * (f.optima - f.optima.mean(axis=0))
    return Problem(
        smoothness=2.0,
        sigma_local=noise,
        sigma_global=float(np.linalg.norm(apart, axis=1).max()),
        gap=f.loss(start) - f.loss(f.optimum()),
    )


def models(rule, table, rates, noise, seed):
    task = QuadraticTask(functions(noise), START)
    engine = Engine(Experiment(task, rule, table, LocalWork(lr=rates.local_lr, batch=1), seed=seed))
    seen = [task.init()]
    while engine.version < table.rounds:
        engine.next_version()
        seen.append(np.array(task.get(engine.state.params)))
    return np.stack(seen[:-1])  # x_0 .. x_{T-1}


def squared_gradients(x):
    gradient = CURVATURES * (x - functions(0).optima.mean(axis=0))
    return (gradient**2).sum(axis=1)


def sampled(seed, staleness, probabilities=None):
    sampler = Sampler(
        WORKERS, M, UniformSteps(1, 4), max_staleness=staleness, probabilities=probabilities
    )
    return sampler.timetable(seed, ROUNDS)


@pytest.mark.parametrize(("staleness", "noise"), CASES)
@pytest.mark.parametrize(
    ("theorem", "probabilities"), [(2, None), (2, PAPER_LIKE), (3, None)], ids=str
)
def test_afa_cd_stays_below_theorems_2_and_3(theorem, probabilities, staleness, noise):
    conditions, limits, bound = {
        2: (general_conditions, general_limits, general_bound),
        3: (uniform_conditions, uniform_limits, uniform_bound),
    }[theorem]
    given = problem(noise, START)
    for share in (0.2, 0.99):
        measured, allowed = [], []
        for seed in range(2):
            table = sampled(seed, staleness, probabilities)
            run = arrivals_of(table)
            rates = limits(given.smoothness, run).rates(share)
            assert all(c.holds for c in conditions(given.smoothness, rates, run))
            x = models(AfaCd(M, rates.server_lr), table, rates, noise, seed)
            measured.append(squared_gradients(x).mean())
            allowed.append(bound(given, rates, run).total)
        assert np.mean(measured) < np.mean(allowed)


@pytest.mark.parametrize(("staleness", "noise"), CASES)
@pytest.mark.parametrize("probabilities", [None, PAPER_LIKE], ids=["uniform", "biased"])
def test_afa_cs_stays_below_theorem_4(probabilities, staleness, noise):
    measured, allowed = [], []
    for seed in range(2):
        table = sampled(seed, staleness, probabilities)
        rows = memory_of(table)
        rates = memory_limits(2.0, rows).rates()
        assert all(c.holds for c in memory_conditions(2.0, rates, rows))
        x = models(AfaCs(M, rates.server_lr, population=WORKERS), table, rates, noise, seed)
        x = x[rows.first :]
        measured.append(squared_gradients(x).mean())
        allowed.append(memory_bound(problem(noise, x[0]), rates, rows).total)
    assert np.mean(measured) < np.mean(allowed)


def test_plain_gradient_descent_against_its_closed_form():
    # Everybody every round, one exact local step: x_t - x* = (1 - eta eta_L h)^t (x_0 - x*).
    table = Sampler(WORKERS, WORKERS, ConstantSteps(1)).timetable(0, ROUNDS)
    rows = memory_of(table)
    rates = memory_limits(2.0, rows).rates()
    x = models(AfaCd(WORKERS, rates.server_lr), table, rates, 0.0, seed=0)
    away = START - functions(0).optimum()
    shrunk = (1 - rates.step * CURVATURES) ** np.arange(ROUNDS)[:, None]
    np.testing.assert_allclose(x, functions(0).optimum() + shrunk * away, rtol=1e-9)
    measured = squared_gradients(x).mean()
    assert measured == pytest.approx(((CURVATURES * shrunk * away) ** 2).sum(axis=1).mean())
    # With nothing random and everybody there, the first term alone is enough.
    assert measured < memory_bound(problem(0.0, START), rates, rows).start
