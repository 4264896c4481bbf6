from math import log

import numpy as np
import pytest

from anarchic import AfaCd, Experiment, LocalWork
from anarchic.data import Dataset, Quadratics
from anarchic.participation import ConstantSteps, Sampler
from anarchic.theory.start import model_at, training_loss
from anarchic.train.quadratic import QuadraticTask


def test_the_model_of_a_version_is_that_of_the_run():
    # x^2 from 8 by steps of 1/4: half of it is left each time.
    task = QuadraticTask(Quadratics(np.full((1, 1), 2.0), np.zeros((1, 1))), np.array([8.0]))
    table = Sampler(1, 1, ConstantSteps(1)).timetable(0, rounds=4)
    run = Experiment(task, AfaCd(1, server_lr=1.0), table, LocalWork(lr=0.25, batch=1))
    assert [model_at(run, version)[0] for version in range(5)] == [8, 4, 2, 1, 0.5]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_f_is_the_mean_over_workers_not_over_samples_nor_of_test_data(dtype):
    torch = pytest.importorskip("torch")
    from anarchic.train.torch_task import TorchTask

    inputs = np.zeros((3, 2), np.float32)
    test = inputs[:1], np.array([0])
    data = Dataset("three", inputs, np.array([0, 0, 1]), *test, classes=2)
    parts = [np.array([0, 1]), np.array([2])]
    task = TorchTask(torch.nn.Linear(2, 2), data, parts, dtype=dtype)
    odds = task.layout.join({"weight": np.zeros((2, 2)), "bias": np.array([log(3), 0])})
    # Class 0 has probability 3/4: -ln(3/4) for the first worker, ln 4 for the second.
    expected = (log(4 / 3) + log(4)) / 2
    assert training_loss(task, data, parts, odds) == pytest.approx(expected, rel=1e-6)
    assert task.evaluate(odds)["loss"] == pytest.approx(log(4 / 3), rel=1e-6)
