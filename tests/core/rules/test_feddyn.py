"""FedDyn, both halves, against numbers that were worked out by hand."""

import numpy as np
import pytest

from anarchic import Dyn, FedAvg, FedDyn, Sgd
from anarchic.core.local import VisitStart, begun, take_local_steps
from anarchic.core.types import Layout
from anarchic.errors import ConfigError

from ..make import fold, update

LR, STEPS = 0.05, 4
LAYOUT = Layout(names=("x",), shapes=((1,),), dtypes=("<f8",))


def test_the_server_adds_what_all_displacements_came_to():
    rule = FedDyn(m=2, population=2)
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a"), update([4.0], "b")])
    assert state.params[0] == pytest.approx(-6.0)  # mean 3, and (2 + 4) / 2
    state = fold(rule, state, [update([1.0], "a", 1), update([1.0], "b", 1)])
    assert state.params[0] == pytest.approx(-6.0 - 1 - (3 + 1))


def test_the_memory_counts_by_all_workers_and_the_mean_by_those_of_the_step():
    rule = FedDyn(m=2, population=4)
    state = fold(rule, rule.init(np.zeros(1)), [update([2.0], "a"), update([4.0], "b")])
    assert state.params[0] == pytest.approx(-3.0 - 1.5)


def test_the_first_step_with_everybody_is_two_of_fedavg():
    rng = np.random.default_rng(0)
    pushed = [update(rng.normal(size=3), w, local_steps=2, local_lr=0.1) for w in "abc"]
    rules = FedDyn(m=3, population=3), FedAvg(m=3, server_lr=2.0)
    ours, theirs = (fold(rule, rule.init(np.zeros(3)), pushed).params for rule in rules)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def visit(rule, start, kept, slope, goal):
    """One visit on slope/2 * (x - goal)^2: the mean direction, and what the worker keeps."""
    rule = begun(rule, VisitStart(LR, 0, LAYOUT))
    held = {name: np.zeros(1) for name in rule.scratch} | kept
    found = take_local_steps(
        rule,
        start,
        held,
        lr=LR,
        gradient=lambda x, k: slope * (x - goal),
        more=lambda done: done < STEPS,
    )
    return found.direction, found.kept


def test_the_worker_adds_alpha_times_its_displacement():
    # from 0, g = -1: x_1 = .05, then g = -.95, pull .1 * .05: mean (1 + .945) / 2 over two steps
    rule = begun(Dyn(alpha=0.1), VisitStart(0.05, 0, LAYOUT))
    held = {"dyn_gradient": np.zeros(1), "dyn_steps": np.zeros(1)}
    found = take_local_steps(
        rule, np.zeros(1), held, lr=0.05, gradient=lambda x, k: x - 1, more=lambda done: done < 2
    )
    assert found.direction[0] == pytest.approx(-0.9725)
    assert found.kept["dyn_gradient"][0] == pytest.approx(0.1 * 2 * 0.05 * -0.9725)
    assert found.sent == {}


def optimum(rule, local, steps=4000):
    """Two workers with different slopes and goals; the optimum of their sum is at 1.5."""
    problems = ((1.0, 0.0), (3.0, 2.0))
    state, kept = rule.init(np.zeros(1)), [{n: np.zeros(1) for n in local.keeps} for _ in problems]
    for version in range(steps):
        for i, problem in enumerate(problems):
            direction, kept[i] = visit(local, state.params, kept[i], *problem)
            pushed = update(direction, str(i), version, local_steps=STEPS, local_lr=LR)
            state = rule.receive(state, pushed)
    return float(state.params[0])


@pytest.mark.slow
def test_both_halves_reach_the_optimum_that_fedavg_misses():
    assert optimum(FedAvg(m=2), Sgd()) == pytest.approx(1.5, abs=0.2)
    assert abs(optimum(FedAvg(m=2), Sgd()) - 1.5) > 0.01
    assert optimum(FedDyn(m=2, population=2), Dyn(alpha=1.0)) == pytest.approx(1.5, abs=1e-6)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="population >= 1"):
        FedDyn(m=1, population=0)
    with pytest.raises(ConfigError, match="alpha"):
        Dyn(alpha=0.0)
    with pytest.raises(ConfigError, match="begin"):
        Dyn().finish(np.zeros(1), {})
