"""A task in a parcel: the arrays once, the task the same."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.data import Dataset, iid
from tests.train.conftest import make_task

pytest.importorskip("ray", reason="Ray is not installed: pip install 'anarchic[ray]'")
from anarchic.train.parcel import packed, unpacked


def test_data_that_a_task_knows_by_several_names_travel_once():
    task = make_task("logistic", "float32")
    data = task._dataset
    assert np.shares_memory(task._data.x, data.x_train)
    parcel = packed(task)
    arrays = (data.x_train, data.y_train, data.x_test, data.y_test, task._held.index)
    small = 50_000  # the layout, the parts
    assert sum(buffer.nbytes for buffer in parcel.buffers) < sum(a.nbytes for a in arrays) + small
    assert len(parcel.pickled) < small


@pytest.mark.parametrize("model", ["quadratic", "logistic", "logistic-crops", "cnn", "lstm"])
def test_what_is_unpacked_is_the_task(model):
    task = make_task(model)
    again = unpacked(packed(task))
    assert again.digest() == task.digest()
    assert again.init().tolist() == task.init().tolist()
    assert again.layout == task.layout


def test_what_is_unpacked_lies_where_the_parcel_lies():
    parcel = packed(make_task("mlp", "float32"))
    for buffer in parcel.buffers:
        buffer.flags.writeable = False  # as the object store hands them out
    x = unpacked(parcel)._data.x
    assert any(np.shares_memory(x.numpy(), buffer) for buffer in parcel.buffers)


def test_arrays_on_disk_travel_as_paths(tmp_path):
    nn = pytest.importorskip("torch").nn
    from anarchic.train.torch_task import TorchTask

    x = np.random.default_rng(0).normal(size=(3_000, 40)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    on_disk, y = np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(3_000) % 4
    data = Dataset.of(on_disk[500:], y[500:], test=(on_disk[:500], y[:500]))
    task = TorchTask(nn.Linear(40, 4), data, iid(2_500, 5, 0))
    parcel = packed(task)
    assert len(parcel.pickled) + sum(buffer.nbytes for buffer in parcel.buffers) < x.nbytes / 2
    again = unpacked(parcel)
    assert np.array_equal(again._data.x.array, x[500:])
    assert again.digest() == task.digest()
    assert again.evaluate(task.init()) == task.evaluate(task.init())
