"""Softmax regression in NumPy against the same model as a module of torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from anarchic.data import Dataset, iid, load
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.train.draws import Draws
from anarchic.train.logistic_task import LogisticTask
from anarchic.train.task import make_task
from tests.test_layers import without

DTYPES = ["float32", "float64"]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load("digits")


def both(data, dtype="float32"):
    """The task, and the same as any module is computed."""
    pytest.importorskip("torch")
    from anarchic.train.torch_task import TorchTask

    parts = iid(data.y_train, 4, 0)
    theirs = TorchTask(make("logistic", data, seed=5), data, parts, dtype=dtype)
    return make_task("logistic", data, parts, seed=5, dtype=dtype), theirs


@pytest.mark.parametrize("dtype", DTYPES)
def test_layout_start_draws_and_digest_are_those_of_the_module(data, dtype):
    """The digest too: a run that was started by way of torch goes on."""
    ours, theirs = both(data, dtype)
    assert isinstance(ours, LogisticTask)
    assert ours.layout == theirs.layout
    assert ours.init().dtype == dtype
    np.testing.assert_array_equal(ours.init(), theirs.init())
    assert ours.digest() == theirs.digest()
    np.testing.assert_array_equal(ours.samples, theirs.samples)
    draws = Draws(3, np.array([2, 0]), np.array([0, 7]), 5)
    drawn = theirs.pick(draws, 6)["sample"].numpy()
    np.testing.assert_array_equal(ours.pick(draws, 6)["sample"], drawn)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14)])
def test_gradients_and_metrics_are_those_of_autograd(data, dtype, tolerance):
    ours, theirs = both(data, dtype)
    params = np.random.default_rng(0).standard_normal(ours.layout.dim).astype(dtype)
    picks = ours.pick(Draws(0, np.array([1]), np.array([0]), 1), 8)
    at_0 = {name: pick[0, 0] for name, pick in picks.items()}
    given = {name: theirs.put(pick) for name, pick in at_0.items()}
    expected = theirs.get(theirs.gradient(theirs.put(params), 1, given))
    found = ours.gradient(params, 1, at_0)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=tolerance)
    lanes = ours.lane_gradients(params[None], np.array([1]), {"sample": picks["sample"][:, 0]})
    np.testing.assert_allclose(lanes[0], expected, atol=tolerance)
    assert ours.evaluate(params) == pytest.approx(theirs.evaluate(params), rel=1e-5)
    alone = pytest.approx(ours.evaluate(params), rel=tolerance)  # BLAS adds as it likes
    assert ours.evaluate_all([params, params]) == [alone] * 2
    assert ours.evaluate_all([]) == []


def test_a_start_may_be_given(data):
    start = np.arange(650.0)
    task = LogisticTask(data, iid(data.y_train, 4, 0), start=start)
    np.testing.assert_array_equal(task.init(), start.astype(np.float32))


def test_tasks_on_one_data_set_share_it_and_can_be_joined(data):
    one, other = (LogisticTask(data, iid(data.y_train, 4, seed)) for seed in (0, 1))
    assert one.batch_key == other.batch_key
    assert one.batch_key != LogisticTask(replace(data), iid(data.y_train, 4, 0)).batch_key
    joint = one.joined([other])
    assert len(joint.samples) == 8
    draws = Draws(3, np.array([6]), np.array([0]), 5)
    own = other.pick(replace(draws, worker=np.array([2])), 6)["sample"]
    np.testing.assert_array_equal(joint.pick(draws, 6)["sample"], own)


def test_images_that_are_cropped_and_other_models_are_computed_by_torch(data):
    pytest.importorskip("torch")
    parts = iid(data.y_train, 4, 0)
    cropped = make_task("logistic", data, parts, augment=True)
    assert type(cropped).__name__ == type(make_task("mlp", data, parts)).__name__ == "TorchTask"


def test_inputs_that_are_tokens_are_refused(data):
    tokens = replace(data, x_train=data.x_train.astype(np.uint8))
    with pytest.raises(ConfigError, match="use lstm"):
        LogisticTask(tokens, [np.arange(4)])


RUNS = """
import anarchic
from anarchic.errors import ConfigError
rules = {"afa-cd": {}, "afa-cs": {}, "fedbuff": {}, "fedavg": {"participation": "exponential"}}
for rule, more in rules.items():
    settings = anarchic.Settings(rule=rule, rounds=3, batch=16, labels_per_worker=2, **more)
    print(anarchic.simulate(settings).params.tobytes().hex())
try:
    anarchic.simulate(anarchic.Settings(model="mlp", rounds=1))
except ConfigError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_run_needs_no_torch_and_gives_the_same_bytes_with_it():
    def shown(code):
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    alone = shown(without("torch") + RUNS).splitlines()
    assert "Model 'mlp' needs PyTorch" in alone[-1]
    pytest.importorskip("torch")
    assert shown("import torch" + RUNS).splitlines() == alone[:4]
