"""The gradient of a worker's own loss, over all of its samples."""

import numpy as np
import pytest

from anarchic import Settings, build
from anarchic.errors import ConfigError
from anarchic.train import samples
from anarchic.train.task import ExactTask


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_it_is_the_mean_of_the_gradients_of_single_samples(model, monkeypatch):
    if model == "mlp":
        pytest.importorskip("torch")
    monkeypatch.setattr(samples, "PIECE", 50)  # a worker holds more
    task = build(Settings(model=model, workers=20, rounds=1)).task
    assert isinstance(task, ExactTask)
    params, held = task.put(task.to_storage(task.init())), task._held
    first = int(held.first[7])
    own = held.index[first : first + int(held.counts[7])]
    assert len(own) > 50
    each = [np.asarray(task.gradient(params, 7, {"sample": task.put(np.array([n]))})) for n in own]
    found = np.asarray(task.exact_gradient(params, 7))
    np.testing.assert_allclose(found, np.mean(each, axis=0), atol=1e-6)
    assert np.abs(found).max() > 1e-3


def test_a_module_that_draws_has_none():
    torch = pytest.importorskip("torch")
    from anarchic import TorchTask
    from anarchic.data import Dataset

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    task = TorchTask(module, Dataset("tiny", x, y, x, y, 2), [np.arange(8)])
    with pytest.raises(ConfigError, match="draws random numbers"):
        task.exact_gradient(task.put(task.init()), 0)
