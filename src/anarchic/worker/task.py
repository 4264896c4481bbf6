"""What a worker trains, the interface between its own code and the live system; first models."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from anarchic import wire
from anarchic.core import registry
from anarchic.core.types import Layout, Vector
from anarchic.data import load
from anarchic.data.digits import load_digits
from anarchic.data.partition import dirichlet
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.models.softmax import gradient_and_loss, softmax_layout
from anarchic.train.draws import Draws
from anarchic.train.task import Task

ALPHA = 0.5  # of the Dirichlet split: each worker has many samples of some classes, few of others
BATCH = 32

GradientResult = tuple[Vector, float | None, int]
"""A gradient, the loss if it is known, and the number of samples that the worker holds."""


class LiveTask(Protocol):
    """A model and one worker's data.

    It may also have ``init() -> Vector``, the parameters that ``anarchic init`` writes.
    """

    @property
    def layout(self) -> Layout:
        """The tensors of the model; the server's must be the same."""

    def gradient(self, params: Vector) -> GradientResult:
        """A stochastic gradient at ``params``, the loss there if it is known, and the samples held.

        It is called once per local step. The samples are those that the worker holds, n_i, or 0; a
        server may weigh by them. ``params`` must be left as it is.
        """


@final
@dataclass(frozen=True)
class FunctionTask:
    """A function ``params -> (gradient, loss or None, samples)`` and the layout of its vector."""

    layout: Layout
    gradient: Callable[[Vector], GradientResult]
    init: Callable[[], Vector] | None = None


@final
class FromTask:
    """One worker's part of a task of the simulator.

    Batches are drawn anew for every local step of the worker's life. They repeat only where
    ``seed`` is given: without it, a worker that is started again must not see the same ones.
    """

    def __init__(
        self, task: Task, worker: int, *, batch: int = 64, seed: int | None = None
    ) -> None:
        if not 0 <= worker < len(task.samples):
            raise ConfigError(
                f"The task has workers 0 to {len(task.samples) - 1}, got worker={worker}."
            )
        if batch < 1:
            raise ConfigError(f"A worker needs a batch of at least 1, got batch={batch}.")
        self._task, self._worker, self._batch = task, worker, batch
        self._seed = secrets.randbits(63) if seed is None else seed
        self._steps = 0

    @property
    def layout(self) -> Layout:
        return self._task.layout

    def init(self) -> Vector:
        return self._task.init()

    def gradient(self, params: Vector) -> GradientResult:
        task, worker = self._task, self._worker
        draws = Draws(self._seed, np.array([worker]), np.array([self._steps]), 1)
        self._steps += 1
        picks = {name: pick[0, 0] for name, pick in task.pick(draws, self._batch).items()}
        gradient = task.get(task.gradient(task.put(params), worker, picks))
        return gradient, None, int(task.samples[worker])


@final
class SoftmaxTask:
    """Softmax regression in NumPy, the model ``logistic`` for workers without torch.

    The loss is the mean cross-entropy on random batches of this worker's samples.
    """

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        classes: int,
        *,
        batch: int = 32,
        rng: Generator | None = None,
    ) -> None:
        labels = np.asarray(y)
        samples = np.asarray(x, np.float32)
        if len(labels) == 0 or len(labels) != len(samples) or batch < 1:
            raise ConfigError(
                f"Softmax regression needs samples with labels and a batch of at least 1, got "
                f"{len(samples)} samples, {len(labels)} labels, batch={batch}."
            )
        self._x, self._y = samples.reshape(len(labels), -1), labels
        self._batch, self._rng = batch, rng or np.random.default_rng()
        self.layout = softmax_layout(self._x.shape[1], classes)

    def init(self) -> Vector:
        return np.zeros(self.layout.dim, np.float32)

    def gradient(self, params: Vector) -> tuple[Vector, float, int]:
        """On a random batch, with the loss there and the samples held."""
        picked = self._rng.integers(len(self._y), size=min(self._batch, len(self._y)))
        x, y = self._x[picked], self._y[picked]
        gradient, loss = gradient_and_loss(self.layout, params, x, y)
        return gradient, loss, len(self._y)


def is_digits(spec: str) -> bool:
    """Whether this names a part of the digits, and not a module."""
    return re.fullmatch(r"digits(:\d.*)?", spec) is not None


def digits_task(spec: str) -> SoftmaxTask:
    """``digits:3/8`` is the third of eight label-skewed parts, the same for everybody.

    >>> digits_task("digits:3/8").layout.names
    ('bias', 'weight')
    """
    found = re.fullmatch(r"digits:(\d+)/(\d+)", spec)
    if found is None:
        raise ConfigError(f"A part of the digits is named as digits:3/8, 3 of 8; got {spec!r}.")
    number, workers = int(found[1]), int(found[2])
    if not 1 <= number <= workers:
        raise ConfigError(f"{spec}: workers count from 1 to {workers}, got {number}.")
    data = load_digits()
    part = dirichlet(data.y_train, workers, ALPHA, seed=0)[number - 1]
    classes = data.need_classes("Softmax regression")
    return SoftmaxTask(data.x_train[part], data.y_train[part], classes, batch=BATCH)


def load_task(spec: str) -> LiveTask:
    """The task that ``module:name`` names, or ``digits:3/8``, worker 3 of 8 of the digits.

    The name may be that of a task, or of anything that returns one when it is called without
    arguments. Tasks that other packages offer are known by name.
    """
    if is_digits(spec):
        return digits_task(spec)
    task: LiveTask = made_task(spec, "layout", "gradient")
    return task


def made_task(spec: str, *needs: str) -> Any:  # Any: it comes out of a user's module
    """What ``module:name`` names, called if it has to be, with these attributes."""
    found = registry.find("tasks", spec)
    if isinstance(found, type) or (callable(found) and not _has(found, needs)):
        found = found()
    missing = [name for name in needs if not _has(found, (name,))]
    if missing:
        raise ConfigError(
            f"{spec} is a {type(found).__name__} without {' and '.join(missing)}: a task has "
            f"{' and '.join(needs)}."
        )
    return found


def _has(found: object, names: tuple[str, ...]) -> bool:
    return all(hasattr(found, name) for name in names)


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
        classes = loaded.need_classes("Model 'logistic'")
        layout = softmax_layout(prod(loaded.x_train.shape[1:]), classes)
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
