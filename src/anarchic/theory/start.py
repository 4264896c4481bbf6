"""The first model that a theorem is about, and f at it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anarchic.core.arrays import on_host
from anarchic.core.types import Vector
from anarchic.data import Dataset, Parts
from anarchic.sim.engine import Engine
from anarchic.sim.experiment import Experiment
from anarchic.train.task import DataTask, Task


def model_at(experiment: Experiment, version: int) -> Vector:
    """The model of ``version``, by running that far again: a record keeps only the last model.

    Theorem 4 begins when every worker has a row. If all are about equally likely, that takes about
    K ln M gradients per worker, less than the estimates take.
    """
    engine = Engine(experiment)
    with experiment.computing():
        while engine.version < version:
            engine.next_version()
    return on_host(engine.state.params)


def training_loss(task: Task, data: Dataset, parts: Parts, params: Vector) -> float:
    """f, the mean over workers of their mean losses on their own samples.

    Samples are not cropped or flipped here.
    """
    assert isinstance(task, DataTask)  # settings make no other
    losses = []
    for part in parts:
        x, y = data.x_train[part], data.y_train[part]
        held = replace(data, x_train=x, y_train=y, x_test=x, y_test=y)
        own = task.on_data(held, [np.arange(len(part))])
        losses.append(own.evaluate(params)["loss"])
    return float(np.mean(losses))
