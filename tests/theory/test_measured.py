"""What is measured in a run, against numbers that were worked out by hand."""

from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from anarchic import (
    AdamStep,
    AfaCd,
    AfaCs,
    Clip,
    Experiment,
    FedBuff,
    LocalWork,
    Scaffold,
    Settings,
    SharedVectors,
    StalenessDiscount,
    build,
)  # fmt: skip
from anarchic.core.rules import Ace, Ca2fl, Malenia, Mifa, Rennala, Ringleader
from anarchic.data import Quadratics
from anarchic.errors import ConfigError
from anarchic.participation import Wasted
from anarchic.theory import measure, weights_of
from anarchic.theory.measured import gini, row_ages
from anarchic.train.quadratic import QuadraticTask
from tests.theory.make import table

LR = 0.5


def experiment(rule, timetable, *, noise=0.0, work=None):
    """f_0 = (x - 4)^2 / 2, f_1 = (x + 2)^2 / 2, from x_0 = 0."""
    functions = Quadratics(np.ones((2, 1)), np.array([[4.0], [-2.0]]), noise=noise)
    return Experiment(QuadraticTask(functions), rule, timetable, work or LocalWork(lr=LR, batch=1))


def test_gradient_drift_delay_and_difference_by_hand():
    # Worker 0 takes two steps from x_0, twice; the second time it is a version late.
    made = table([0, 0], [0, 0], [2, 2], workers=2, m=1)
    first, second = measure(experiment(AfaCd(1), made), every=1)
    # grad f_0 = -4, grad f_1 = 2 at 0; y_1 = 2, so the gradients on the way are -4 and -2
    assert (first.squared_gradient, first.heterogeneity) == (1.0, 9.0)
    assert (first.noise, first.drift, first.delay) == (0.0, 1.0, 0.0)
    # x_1 = 0 + .5 * 3 = 1.5, where the gradients are -2.5 and 3.5
    assert second.squared_gradient == pytest.approx(0.25)
    assert second.heterogeneity == pytest.approx(9.0)
    assert (second.noise, second.drift, second.delay) == (0.0, 1.0, pytest.approx(2.25))
    assert (second.round, second.updates, second.local_steps) == (1, 1, 2)
    assert second.bytes == 2 * 8  # one number pulled and one pushed, in float64
    assert (second.staleness_mean, second.staleness_max) == (1.0, 1)
    assert (second.row_age_mean, second.row_age_max, second.workers_heard) == (1.0, 1, 1)


def test_what_moved_in_vain_is_in_the_bytes():
    made = table([0, 0, 0], [0, 1, 2], [1, 1, 1], workers=2, m=1)
    # refused, retried, skipped, stopped, lost, local_steps, before the versions 1, 2 and 3
    rows = [[2, 1, 5, 0, 0, 9], [0, 0, 0, 1, 1, 9], [7, 0, 0, 7, 7, 9]]
    coupled = replace(made, wasted=Wasted.of(rows))
    found = measure(experiment(AfaCd(1), coupled), every=1)
    # A model of 8 bytes: two for each folded or refused update, one for each stopped or lost visit.
    assert [row.bytes for row in found] == [0, 8 * (2 + 4), 8 * (4 + 4 + 2)]
    assert [row.bytes for row in measure(experiment(AfaCd(1), made), every=1)] == [0, 16, 32]


def test_the_noise_is_that_of_the_mean_over_local_steps():
    made = table([0, 1] * 400, np.arange(800) // 2, [4] * 800, workers=2)
    found = measure(experiment(AfaCd(2, 0.01), made, noise=3.0), every=1)
    assert np.mean([row.noise for row in found]) == pytest.approx(9 / 4, rel=0.1)


def test_measuring_leaves_the_run_as_it_was():
    settings = Settings(rounds=12, max_staleness=4, dynamic_steps=True, seed=3)
    rows = measure(build(settings), every=4)
    again = measure(build(settings), every=1)
    assert [row.round for row in rows] == [0, 4, 8]
    assert rows == [again[0], again[4], again[8]]


def test_a_run_with_controls_has_gradients_and_no_noise():
    rule = SharedVectors(AfaCd(2), ("control",), population=2)
    made = table([0, 1] * 3, np.arange(6) // 2, [1] * 6, workers=2)
    run = experiment(rule, made, work=LocalWork(Scaffold(), lr=LR, batch=1))
    found = measure(run, every=2)
    assert [row.round for row in found] == [0, 2]
    assert found[0].squared_gradient == 1.0
    assert all(isnan(row.noise) and isnan(row.drift) for row in found)
    assert found[1].bytes == 4 * 2 * 2 * 8  # four updates; the control travels beside the model


def test_the_age_of_each_workers_last_update():
    made = table([0, 1, 0, 1], [0, 0, 1, 0], [1] * 4, workers=3)
    assert row_ages(made, 0).tolist() == []
    assert row_ages(made, 1).tolist() == [1, 1]
    assert row_ages(made, 2).tolist() == [1, 2]


def test_weights_of_afa_cd_count_updates_and_rates():
    made = table([0, 1, 0, 0], [0, 0, 1, 1], [1] * 4, workers=2)
    found = weights_of(experiment(AfaCd(2, server_lr=4.0), made))
    assert found.by_worker.tolist() == [3.0, 1.0]  # eta eta_L / m = 1 for each update
    assert found.shares.tolist() == [0.75, 0.25]
    assert found.gini == 0.25


def test_a_silent_worker_has_no_negative_zero():
    made = table([0, 0], [0, 0], [1, 1], workers=2)
    assert np.copysign(1, weights_of(experiment(AfaCd(2), made)).by_worker).tolist() == [1, 1]


def test_weights_of_afa_cs_count_rows_as_often_as_they_are_used():
    made = table([0, 1, 0, 0], [0, 0, 1, 1], [1] * 4, workers=2)
    found = weights_of(experiment(AfaCs(2, server_lr=4.0, population=2), made))
    assert found.by_worker.tolist() == [2.0, 2.0]  # both rows in both steps


def test_weights_count_local_steps_and_discounts_where_the_rule_does():
    made = table([0, 1, 0], [0, 0, 0], [1, 3, 3], workers=2, m=1)
    buffered = weights_of(experiment(FedBuff(1, power=1.0), made)).by_worker
    assert buffered.tolist() == [0.5 * 1 + 0.5 * 3 / 3, 0.5 * 3 / 2]
    late = weights_of(experiment(StalenessDiscount(AfaCd(1), power=1.0), made)).by_worker
    assert late.tolist() == pytest.approx([0.5 + 0.5 / 3, 0.5 / 2])
    assert weights_of(experiment(Ca2fl(1, population=2), made)).by_worker.sum() > 0


@pytest.mark.parametrize("rule", [AfaCd(2, step=AdamStep()), Clip(AfaCd(2), max_norm=1.0)])
def test_rules_that_look_at_lengths_have_no_weights(rule):
    made = table([0, 1], [0, 0], [1, 1], workers=2)
    with pytest.raises(ConfigError, match="not linear in the updates"):
        weights_of(experiment(rule, made))


def test_the_gini_index():
    assert gini([1, 1, 1]) == pytest.approx(0)
    assert gini([0, 0, 0, 5]) == 0.75
    assert gini([1, 3]) == 0.25
    assert gini([0, 0]) == 0


def test_what_cannot_be_measured_is_refused():
    made = table([0, 1], [0, 0], [1, 1], workers=2)
    run = experiment(AfaCd(2), made)
    with pytest.raises(ConfigError, match="every=0"):
        measure(run, every=0)
    bare = replace(run)
    object.__setattr__(bare, "task", object())
    with pytest.raises(ConfigError, match="object has no exact gradients"):
        measure(bare)


@pytest.mark.parametrize(
    "rule",
    [
        Mifa(1, population=4),
        Ace(population=4),
        Rennala(batch=30),
        Malenia(batch=12, population=4),
        Ringleader(population=4),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_rules_that_wait_before_they_step_are_looked_at_too(rule):
    made = table([0, 1, 2, 3] * 20, np.arange(80), [1] * 80, workers=4, m=1)
    functions = Quadratics(np.ones((4, 1)), np.arange(4.0)[:, None])
    run = Experiment(QuadraticTask(functions), rule, made, LocalWork(lr=LR, batch=1))
    assert weights_of(run).by_worker.sum() > 0
    with pytest.raises(ConfigError, match="not linear in the updates"):
        weights_of(replace(run, rule=replace(rule, step=AdamStep())))
