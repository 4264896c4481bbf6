"""Initial models: version 0 of a run."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from anarchic import wire
from anarchic.core.types import Layout, Vector
from anarchic.data.catalogue import load
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.models.softmax import softmax_layout
from anarchic.worker.digits import digits_task, is_digits
from anarchic.worker.task import made_task


def write_initial_model(
    out: Path,
    *,
    model: str | None = None,
    data: str = "digits",
    task: str | None = None,
    seed: int = 0,
) -> Layout:
    """Write an initial model to a new file: ``model`` of the package for ``data``, or a task's.

    ``seed`` is that of the model's random parameters; a task draws its own.
    """
    if (model is None) == (task is None):
        raise ConfigError("Give --model or --task: one of the two says what to write.")
    if seed < 0:
        raise ConfigError(f"A seed must be at least 0, got {seed}.")
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or write to another file.")
    if not out.parent.is_dir():
        raise ConfigError(f"There is no directory {out.parent} to write {out.name} to.")
    layout, params = initial_model(model, data, seed) if model else initial_of_task(str(task))
    wire.save_model(out, layout, params)
    return layout


def initial_model(model: str, data: str = "digits", seed: int = 0) -> tuple[Layout, Vector]:
    """A model of the package for a data set; ``logistic`` needs no torch."""
    loaded = load(data)
    if model == "logistic" and loaded.x_train.dtype.kind == "f":
        layout = softmax_layout(prod(loaded.x_train.shape[1:]), loaded.classes)
        return layout, np.zeros(layout.dim, np.float32)
    module = make(model, loaded, seed=seed)
    from anarchic.train.torch_task import TorchTask

    task = TorchTask(module, loaded, [np.arange(1)])
    return task.layout, task.init()


def initial_of_task(spec: str) -> tuple[Layout, Vector]:
    """The parameters that ``init()`` of the task ``module:name`` gives."""
    task = digits_task(spec) if is_digits(spec) else made_task(spec, "layout", "init")
    if task.init is None:
        raise ConfigError(f"{spec} has no init(), which gives the initial parameters.")
    layout: Layout = task.layout
    params: Vector = np.asarray(task.init())
    if params.shape != (layout.dim,) or not np.isfinite(params).all():
        raise ConfigError(
            f"{spec}: init() must give {layout.dim} finite numbers in one dimension, got shape "
            f"{params.shape}."
        )
    return layout, params if params.dtype == np.float64 else params.astype(np.float32)
