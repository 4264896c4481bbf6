"""Inputs on disk are read batch by batch and give the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.core.rules import AfaCd
from anarchic.data import Dataset, iid
from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.experiment import Experiment
from anarchic.sim.simulate import simulate
from anarchic.train.logistic_task import LogisticTask
from anarchic.train.task import LocalWork, make_task

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic.train.torch_task import TorchTask  # noqa: E402

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(60, 3, 6, 6)).astype(np.float32)
LABELS = RNG.integers(4, size=60)


def on_disk(tmp_path, name, array):
    np.save(tmp_path / name, array)
    return np.load(tmp_path / name, mmap_mode="r")


def trained(data, module, samples=None, per_worker=False):
    torch.manual_seed(0)
    parts = iid(samples or len(data.y_train), 4, 0)
    task = TorchTask(module(), data, parts, per_worker=per_worker)
    table = Sampler(4, 2, ConstantSteps(2)).timetable(0, 3)
    run = simulate(Experiment(task, AfaCd(2, 1.0), table, LocalWork(lr=0.1, batch=8)))
    told = {name: value for name, value in run.metrics[-1].items() if name != "train_seconds"}
    return run.params, told, task.digest()


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 4))


@pytest.mark.parametrize("augment", ["none", "crop-flip"])
def test_training_from_disk_is_training_from_memory(tmp_path, augment):
    x = on_disk(tmp_path, "x.npy", IMAGES)
    y = on_disk(tmp_path, "y.npy", LABELS)
    how = {"augment": augment, "classes": 4}
    memory = Dataset.of(IMAGES[:50], LABELS[:50], test=(IMAGES[50:], LABELS[50:]), **how)
    disk = Dataset.of(x[:50], y[:50], test=(x[50:], y[50:]), **how)
    there, here = (trained(data, net, per_worker=True) for data in (disk, memory))
    assert np.array_equal(there[0], here[0])
    assert there[1] == here[1]
    assert "workers_mean" in there[1]
    if augment == "none":  # images in memory have a border where they are cropped
        assert there[2] == here[2]


def test_tokens_of_sixteen_bits_are_read(tmp_path):
    tokens = RNG.integers(60_000, 60_010, size=(60, 5)).astype(np.uint16)
    x = on_disk(tmp_path, "t.npy", tokens)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(60_010, 4)

        def forward(self, tokens):
            return self.embedding(tokens)[:, -1]

    disk = Dataset.of(x[:50], LABELS[:50], test=(x[50:], LABELS[50:]))
    plain = Dataset.of(
        tokens[:50].astype(np.int64), LABELS[:50], test=(tokens[50:].astype(np.int64), LABELS[50:])
    )
    assert np.array_equal(trained(disk, Last)[0], trained(plain, Last)[0])


@pytest.mark.slow
def test_more_than_the_memory_is_never_read_whole(tmp_path):
    """An eighth of a terabyte, all holes."""
    samples, size = 2**22, 2**13
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(4 * samples * size)
    x = np.memmap(path, np.float32, "r", shape=(samples, size))
    y = np.arange(samples) % 4
    data = Dataset.of(x, y, test=(x[:10], y[:10]))
    module = nn.Sequential(
        nn.Unflatten(1, (16, size // 16)), nn.AvgPool1d(size // 16), nn.Flatten()
    )
    params, told, _ = trained(data, lambda: nn.Sequential(module, nn.Linear(16, 4)), samples=100)
    assert np.isfinite(params).all()
    assert told["loss"] < 2


def test_softmax_regression_on_disk_takes_torch(tmp_path):
    x = on_disk(tmp_path, "x.npy", IMAGES)
    data = Dataset.of(x[:50], LABELS[:50], test=(x[50:], LABELS[50:]))
    parts = iid(50, 4, 0)
    assert isinstance(make_task("logistic", data, parts), TorchTask)
    with pytest.raises(ConfigError, match="reads all of mine into memory"):
        LogisticTask(data, parts)
