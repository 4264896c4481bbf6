from __future__ import annotations

import numpy as np

from anarchic.data import Quadratics, random_quadratics
from anarchic.train.draws import Draws
from anarchic.train.quadratic import QuadraticTask


def test_a_gradient_by_hand():
    # f_0 = 2 (x - 3)^2 / 2, so the gradient at 5 is 4.
    task = QuadraticTask(Quadratics(np.array([[2.0]]), np.array([[3.0]])))
    picks = task.pick(Draws(0, np.array([0]), np.array([0]), 1), 1)
    assert task.gradient(np.array([5.0]), 0, {"noise": picks["noise"][0, 0]}).tolist() == [4.0]


def test_the_noise_has_the_variance_that_was_asked_for_and_a_batch_divides_it():
    task = QuadraticTask(random_quadratics(1, 10, noise=2.0))
    lanes = Draws(0, np.zeros(2000, int), np.arange(2000), 1)
    for batch in (1, 4):
        noise = task.pick(lanes, batch)["noise"][:, 0]
        variance = (noise**2).sum(axis=1).mean()
        assert abs(variance - 4.0 / batch) < 0.15 / batch


def test_full_and_diagonal_hessians_agree():
    diagonal = random_quadratics(3, 4)
    hessians = diagonal.hessians
    if hessians.ndim == 2:
        full = Quadratics(np.stack([np.diag(h) for h in hessians]), diagonal.optima)
    else:
        full = diagonal
        diagonal = Quadratics(np.stack([np.diag(h) for h in hessians]), full.optima)
        full = Quadratics(np.stack([np.diag(h) for h in diagonal.hessians]), full.optima)
    params, workers = np.ones((3, 4)), np.arange(3)
    zero = {"noise": np.zeros((3, 4))}
    one = QuadraticTask(full).lane_gradients(params, workers, zero)
    two = QuadraticTask(diagonal).lane_gradients(params, workers, zero)
    np.testing.assert_allclose(one, two)


def test_evaluation_is_zero_distance_at_the_optimum():
    functions = random_quadratics(3, 4)
    found = QuadraticTask(functions).evaluate(functions.optimum())
    assert found["distance"] == 0
    assert found["loss"] == functions.loss(functions.optimum())
