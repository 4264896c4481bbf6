import numpy as np
import pytest

from anarchic.data import Quadratics, load, random_quadratics
from anarchic.errors import ConfigError
from anarchic.theory.estimate import (
    estimate_constants,
    estimate_smoothness,
    estimate_variances,
)
from anarchic.train.quadratic import QuadraticTask


def spread(noise=0.0, workers=40, dim=6):
    """Functions with curvatures up to 5, the workers' gradients apart by what optima they have."""
    rng = np.random.default_rng(4)
    curvatures = np.linspace(0.5, 5, dim)
    optima = rng.normal(size=(workers, dim))
    return Quadratics(np.tile(curvatures, (workers, 1)), optima, noise)


def test_smoothness_is_the_largest_curvature_of_any_worker():
    task = QuadraticTask(random_quadratics(20, 8, condition=10))
    assert estimate_smoothness(task, task.init()) == pytest.approx(1, rel=0.02)
    uneven = Quadratics(np.array([[1.0, 2.0], [7.0, 0.1], [3.0, -4.0]]), np.zeros((3, 2)))
    task = QuadraticTask(uneven)
    assert estimate_smoothness(task, task.init()) == pytest.approx(7, rel=0.02)


def test_curvature_downwards_counts():
    task = QuadraticTask(Quadratics(np.array([[1.0, -3.0]]), np.zeros((1, 2))))
    assert estimate_smoothness(task, task.init()) == pytest.approx(3, rel=0.02)


def test_sigma_local_is_the_noise_of_a_batch():
    task = QuadraticTask(spread(noise=2.0, dim=50))
    for batch in (1, 4):
        found = estimate_variances(task, task.init(), batch=batch, repeats=64)
        # The largest of 40 estimates, each with a relative deviation of about 1.3 %.
        assert found.sigma_local == pytest.approx(2 / np.sqrt(batch), rel=0.06)


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_sigma_global_is_that_of_the_worker_farthest_off_whatever_the_noise(noise):
    functions = spread(noise)
    task, x = QuadraticTask(functions), np.full(6, 0.5)
    gradients = np.stack([functions.gradient(x, worker) for worker in range(40)])
    apart = ((gradients - gradients.mean(axis=0)) ** 2).sum(axis=1).max()
    found = estimate_variances(task, x, batch=1, repeats=256)
    assert found.sigma_global == pytest.approx(np.sqrt(apart), rel=1e-9 if noise == 0 else 0.03)
    squared = (gradients.mean(axis=0) ** 2).sum()
    assert found.squared_gradient == pytest.approx(squared, rel=1e-9 if noise == 0 else 0.05)


def test_noise_alone_is_not_taken_for_heterogeneity():
    alike = Quadratics(np.ones((10, 20)), np.zeros((10, 20)), noise=1.0)
    found = estimate_variances(QuadraticTask(alike), np.zeros(20), batch=1, repeats=64)
    assert found.sigma_global < 0.1  # without the correction: 1/8 and more
    assert found.squared_gradient < 0.01


def test_the_noise_left_in_the_means_of_two_workers_is_taken_off_exactly():
    # Gradients of (0.3, 0.1) and (-0.1, 0.1), 4 batches with a variance of 1 in 20,000 dimensions:
    # chance would add (1/4 + 1/4) / 4 to each square.
    optima = np.zeros((2, 20_000))
    optima[:, :2] = [[-0.3, -0.1], [0.1, -0.1]]
    task = QuadraticTask(Quadratics(np.ones_like(optima), optima, noise=1.0))
    found = estimate_variances(task, np.zeros(20_000), batch=1, repeats=4)
    assert found.sigma_global**2 == pytest.approx(0.04, abs=0.005)
    assert found.squared_gradient == pytest.approx(0.02, abs=0.005)
    assert found.sigma_local**2 == pytest.approx(1, rel=0.03)  # not 3/4


def test_a_sample_of_many_workers_includes_the_first_and_the_last():
    curvatures = np.ones((200, 1))
    curvatures[0], curvatures[-1] = 5.0, 7.0
    task = QuadraticTask(Quadratics(curvatures, np.zeros((200, 1))))
    assert estimate_smoothness(task, np.zeros(1)) == pytest.approx(7, rel=0.02)
    curvatures[-1] = 1.0
    assert estimate_smoothness(task, np.zeros(1)) == pytest.approx(5, rel=0.02)


def test_the_constants_of_logistic_regression_by_hand():
    torch = pytest.importorskip("torch")
    from anarchic.data import Dataset
    from anarchic.train.torch_task import TorchTask

    # x = (1, 0) always. Worker 0 has class 0 twice, worker 1 each class once. At weights of zero
    # both classes have probability 1/2, and a gradient is (-1/2, 1/2) or (1/2, -1/2) times x and 1.
    x, y = np.array([[1, 0]] * 4, np.float32), np.array([0, 0, 0, 1])
    data = Dataset("four", x, y, x, y, classes=2)
    task = TorchTask(torch.nn.Linear(2, 2), data, [np.array([0, 1]), np.array([2, 3])])
    found = estimate_constants(task, [np.zeros(6, np.float32)], batch=1, repeats=256)
    assert found.smoothness == pytest.approx(1, rel=0.01)  # 1/2 * (|x|^2 + 1)
    assert found.sigma_local == pytest.approx(1, rel=0.03)  # worker 1; worker 0 has none
    assert found.sigma_global == pytest.approx(0.5, rel=0.1)  # gradients of norm 1 and 0
    assert found.squared_gradients[0] == pytest.approx(0.25, rel=0.2)


def test_the_largest_of_all_points_counts():
    # Gradients of workers with other curvatures part with the distance.
    functions = Quadratics(np.array([[1.0], [3.0]]), np.zeros((2, 1)))
    task = QuadraticTask(functions)
    near, far = np.array([1.0]), np.array([10.0])
    found = estimate_constants(task, [near, far], batch=1)
    assert found.sigma_global == pytest.approx(10)  # (3 - 1) / 2 * 10
    assert found.sigma_local == pytest.approx(0, abs=1e-9)
    assert found.squared_gradients == pytest.approx((4, 400))
    assert found.smoothness == pytest.approx(3, rel=1e-6)


def test_estimates_repeat():
    task = QuadraticTask(spread(noise=1.0))
    once, again = (estimate_constants(task, [task.init()], batch=2) for _ in range(2))
    assert once == again


def test_softmax_regression_in_single_precision():
    from anarchic import Settings, build

    experiment = build(Settings(labels_per_worker=1, rounds=1))
    task, x = experiment.task, experiment.task.init()
    apart = estimate_constants(task, [x], batch=64, repeats=8)
    mixed = estimate_constants(build(Settings(rounds=1)).task, [x], batch=64, repeats=8)
    assert apart.sigma_global > 3 * mixed.sigma_global
    # The loss is convex: no curvature can lie above that of softmax, 1/2 of the inputs' squares.
    inputs = load("digits").x_train
    squares = float((inputs**2).reshape(len(inputs), -1).sum(axis=1).max())
    assert 0.1 < apart.smoothness < 0.5 * (squares + 1)
    whole = estimate_variances(task, x, batch=64, repeats=8)
    assert whole.sigma_local == pytest.approx(apart.sigma_local)


def test_impossible_requests_are_refused():
    task = QuadraticTask(spread())
    with pytest.raises(ConfigError, match="point"):
        estimate_constants(task, [], batch=1)
    with pytest.raises(ConfigError, match="2 repeats"):
        estimate_variances(task, task.init(), batch=1, repeats=1)


def test_running_statistics_are_no_gradient():
    """With and without them the estimates are the same: in training mode they are not used."""
    torch = pytest.importorskip("torch")
    from torch import nn

    from anarchic.data import iid
    from anarchic.train.torch_task import TorchTask

    data = load("digits")
    parts = iid(data.y_train, 3, 0)

    def estimated(tracked):
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(4, track_running_stats=tracked)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), norm, nn.Linear(4, 10))
        task = TorchTask(module, data, parts, dtype="float64", buffers="average")
        assert bool(task.layout.buffers) == tracked
        return estimate_variances(task, task.init(), batch=8, repeats=4)

    with_them, without = estimated(True), estimated(False)
    assert with_them.squared_gradient == pytest.approx(without.squared_gradient, rel=1e-9)
    assert with_them.sigma_local == pytest.approx(without.sigma_local, rel=1e-9)
