"""Whole visits in one compiled loop, against the loop of local steps."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic import LocalWork, Prox, Sgd
from anarchic.data import Dataset, iid
from anarchic.kernels import logistic_sparse
from anarchic.kernels.chunks import threads_in_use, use_threads
from anarchic.train.backends import Batched, Loop
from anarchic.train.task import make_task
from tests.train.conftest import WORKERS
from tests.train.test_backends import difference, lanes, walked

pytestmark = pytest.mark.skipif(not logistic_sparse.CAN_COMPILE, reason="Numba is not installed")


@pytest.fixture
def data(monkeypatch):
    monkeypatch.setattr(logistic_sparse, "_ENOUGH", 0)
    rng = np.random.default_rng(0)
    x = np.where(rng.random((60, 1, 8, 8)) < 0.2, rng.random((60, 1, 8, 8)), -0.5)
    y = rng.integers(0, 10, 60)
    return Dataset("strokes", x[:50].astype(np.float32), y[:50], x[50:], y[50:], 10)


@pytest.fixture(autouse=True)
def same_threads_afterwards():
    threads = threads_in_use()
    yield
    use_threads(threads)


def task_on(data, model="logistic", dtype="float64", seed=0):
    parts = iid(data.y_train, WORKERS, seed)
    return make_task(model, data, parts, dtype=dtype)


@pytest.mark.slow  # it compiles whole visits, as do the next two where no machine code is kept
@pytest.mark.parametrize("rule", [Sgd(), Prox(0.1)], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
def test_they_equal_the_loop(data, rule, dtype, tolerance):
    task, work = task_on(data, dtype=dtype), LocalWork(rule, lr=0.05, batch=3)
    assert task.lane_visits is not None
    loop, batched = walked(task, work, 10, Loop()), walked(task, work, 10, Batched())
    assert loop.dtype == dtype
    assert (loop != task.init()).any()
    assert difference(batched, loop) < tolerance


@pytest.mark.slow
def test_lanes_do_not_depend_on_their_neighbours(data):
    task = task_on(data, dtype="float32")
    many = lanes(task, [1, 4, 2, 3, 1, 1, 5, 2, 2, 3], LocalWork(batch=4))
    together = Batched().compute(task, many).directions
    for lane in range(10):
        alone = Batched().compute(task, many.take(np.array([lane]))).directions
        np.testing.assert_array_equal(together[lane], alone[0])


@pytest.mark.slow
def test_threads_do_not_show(data):
    task = task_on(data, dtype="float32")
    many = lanes(task, [9, 4, 20, 3, 8], LocalWork(batch=4))
    found = []
    for threads in (1, 2, 3):
        use_threads(threads)
        found.append(Batched().compute(task, many).directions)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_tasks_on_one_data_set_share_its_entries(data):
    one, other = task_on(data), task_on(data, seed=1)
    assert one._sparse is other._sparse is not None
    assert one.joined([other]).lane_visits is not None


def test_other_models_and_other_data_go_step_by_step(data):
    assert getattr(task_on(data, "mlp"), "lane_visits", None) is None
    dense = Dataset(
        "noise", data.x_train + np.random.default_rng(0).random((50, 1, 8, 8)), *_rest(data)
    )
    assert task_on(dense).lane_visits is None


def _rest(data):
    return data.y_train, data.x_test, data.y_test, data.classes
