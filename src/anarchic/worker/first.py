"""First models: what a server begins with."""

from __future__ import annotations

from math import prod

import numpy as np

from anarchic.core.types import Layout, Vector
from anarchic.data.catalogue import load
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.models.softmax import softmax_layout
from anarchic.worker.digits import digits_task, is_digits
from anarchic.worker.task import made_task


def first_model(model: str, data: str = "digits", seed: int = 0) -> tuple[Layout, Vector]:
    """A model of the package for a data set. Of all models, ``logistic`` needs no torch."""
    loaded = load(data)
    if model == "logistic" and loaded.x_train.dtype.kind == "f":
        layout = softmax_layout(prod(loaded.x_train.shape[1:]), loaded.classes)
        return layout, np.zeros(layout.dim, np.float32)
    module = make(model, loaded, seed=seed)
    from anarchic.train.torch_task import TorchTask

    task = TorchTask(module, loaded, [np.arange(1)])
    return task.layout, task.init()


def first_of_task(spec: str) -> tuple[Layout, Vector]:
    """What the task that ``module:name`` names begins with, by its own ``init``."""
    task = digits_task(spec) if is_digits(spec) else made_task(spec, "layout", "init")
    if task.init is None:
        raise ConfigError(f"{spec} has no init(), so nobody knows its first parameters.")
    layout: Layout = task.layout
    params: Vector = np.asarray(task.init())
    if params.shape != (layout.dim,) or not np.isfinite(params).all():
        raise ConfigError(
            f"{spec}: init() must give {layout.dim} finite numbers in one dimension, got shape "
            f"{params.shape}."
        )
    return layout, params if params.dtype == np.float64 else params.astype(np.float32)
