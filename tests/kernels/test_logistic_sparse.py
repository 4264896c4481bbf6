from __future__ import annotations

from math import log

import numpy as np
import pytest

from anarchic.kernels import logistic_sparse
from anarchic.kernels.logistic_sparse import made_sparse, sparse
from anarchic.models.softmax import lane_gradients

needs_numba = pytest.mark.skipif(not logistic_sparse.CAN_COMPILE, reason="Numba is not installed")
DTYPES = ["float32", "float64"]


def visits(x, y, background, start, rates, steps, sample):
    dtype = start.dtype
    data = made_sparse(np.array(x, dtype), np.array(y), dtype.type(background))
    return data.visits(start, np.array(rates, dtype), np.array(steps), np.array(sample))


@needs_numba
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("background", "x", "weights"),
    [  # P - Y is (-1/2, 1/2), times x
        (0, [0, 3], [0, -1.5, 0, 1.5]),
        (1, [1, 4], [-0.5, -2, 0.5, 2]),
        (1, [1, 1], [-0.5, -0.5, 0.5, 0.5]),
        (0, [0, 0], [0, 0, 0, 0]),
    ],
)
def test_the_gradient_of_one_sample_by_hand(dtype, background, x, weights):
    start = np.zeros((1, 6), dtype)
    found = visits([x], [0], background, start, [0.1], [1], [[[0]]])
    assert found.dtype == dtype
    assert found.tolist() == [[-0.5, 0.5, *weights]]


@needs_numba
def test_the_mean_of_two_steps_by_hand():
    # The first gradient is (-1/2, 1/2) in bias and weight; at rate ln(3)/2 it moves the outputs
    # ln 3 apart, so that P is (3/4, 1/4) and the second gradient (-1/4, 1/4).
    found = visits([[1]], [0], 1, np.zeros((1, 4)), [log(3) / 2], [2], [[[0], [0]]])
    np.testing.assert_allclose(found, [[-3 / 8, 3 / 8, -3 / 8, 3 / 8]], rtol=1e-15)


def some(dtype, background):
    """Samples of 30 numbers, four fifths of them background; the first is nothing else."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((20, 30)) < 0.2, rng.standard_normal((20, 30)), background)
    x[0] = background
    start = rng.standard_normal((3, 10 * 31)).astype(dtype)
    sample = rng.integers(0, 20, (3, 4, 7))
    sample[:, :, 2] = 0
    return x.astype(dtype), rng.integers(0, 10, 20), start, sample


@needs_numba
@pytest.mark.parametrize("background", [0, -0.4242])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14)])
def test_visits_agree_with_dense_gradients(dtype, tolerance, background):
    x, y, start, sample = some(dtype, background)
    rates, steps = np.array([0.5, 0.1, 0.2], dtype), [4, 1, 3]
    found = visits(x, y, background, start, rates, steps, sample)
    for lane in range(3):
        params, total = start[lane : lane + 1], 0
        for k in range(steps[lane]):
            picked = sample[lane : lane + 1, k]
            gradient = lane_gradients(params, x[picked], y[picked], 10)
            params, total = params - rates[lane] * gradient, total + gradient
        np.testing.assert_allclose(found[lane], total[0] / steps[lane], atol=tolerance)


@needs_numba
def test_a_lane_gives_the_same_alone():
    x, y, start, sample = some("float32", -0.4242)
    rates, steps = np.array([0.5, 0.1, 0.2]), np.array([4, 1, 3])
    together = visits(x, y, -0.4242, start, rates, steps, sample)
    for lane in range(3):
        one = slice(lane, lane + 1)
        alone = visits(x, y, -0.4242, start[one], rates[one], steps[one], sample[one])
        np.testing.assert_array_equal(alone[0], together[lane])


@needs_numba
def test_it_is_chosen_for_much_data_with_much_background(monkeypatch):
    x, y, _, _ = some("float32", -0.4242)
    assert sparse(x, y) is None  # too little to be worth a compiler
    monkeypatch.setattr(logistic_sparse, "_ENOUGH", 600)
    data = sparse(x, y)
    assert data.background == np.float32(-0.4242)
    assert np.diff(data.first)[0] == 0
    assert (data.value != 0).sum() == (x != np.float32(-0.4242)).sum()
    assert sparse(np.random.default_rng(0).random((20, 30)), y) is None
    monkeypatch.setattr(logistic_sparse, "CAN_COMPILE", False)
    assert sparse(x, y) is None


@needs_numba
def test_classes_have_to_fit_a_row_and_labels_the_classes():
    data = made_sparse(np.zeros((2, 3)), np.array([0, 9]), np.float64(0))
    assert [data.suits(classes) for classes in (9, 10, 16, 17)] == [False, True, True, False]
