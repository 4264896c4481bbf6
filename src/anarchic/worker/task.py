"""What a worker trains, the interface between its own code and the live system; first models."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from anarchic.core import registry
from anarchic.core.types import Layout, Vector
from anarchic.data.digits import load_digits
from anarchic.data.partition import dirichlet
from anarchic.errors import ConfigError
from anarchic.models.softmax import gradient_and_loss, softmax_layout
from anarchic.train.draws import Draws
from anarchic.train.task import OWN_BUFFERS, Task

ALPHA = 0.5  # of the Dirichlet split: each worker has many samples of some classes, few of others
BATCH = 32

GradientResult = tuple[Vector, float | None, int]
"""A gradient, the loss if it is known, and the number of samples that the worker holds."""


class LiveTask(Protocol):
    """A model and one worker's data.

    It may also have ``init() -> Vector``, the parameters that ``anarchic init`` writes, and
    ``begin(layout, snapshot)``, which is called after each pull. Where its layout names buffers, a
    gradient has in their places what they are after the step. A task that keeps vectors of its own
    from visit to visit has ``kept() -> Mapping[str, Vector]``, which the spool stores with an
    update, and ``restore(kept)``, called when a visit begins with what was kept with the last
    update that the server accepted.
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
    Buffers travel where the task averages them. Where its policy is ``local`` they are no part of
    the layout: the worker keeps its own.
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
        whole, own = task.layout, bool(getattr(task, "keeps_buffers", False))
        self.local_buffers = whole.buffers if own else ()
        self.layout = _without(whole, self.local_buffers)
        self._places = whole.buffer_places if own else whole.buffer_places[:0]
        self._trained = np.delete(np.arange(whole.dim), self._places)
        self._first: Vector = task.init()
        self._own: Vector = self._first[self._places]  # buffers that never travel

    def init(self) -> Vector:
        return self._first[self._trained]

    def kept(self) -> Mapping[str, Vector]:
        """The buffers that the worker keeps to itself."""
        return {OWN_BUFFERS: self._own} if self.local_buffers else {}

    def restore(self, kept: Mapping[str, Vector]) -> None:
        """Go back to the buffers that were kept; to the first if they are of another model."""
        first = self._first[self._places]
        found = kept.get(OWN_BUFFERS, first)
        usable = found.shape == first.shape and bool(np.isfinite(found).all())
        self._own = found if usable else first

    def gradient(self, params: Vector) -> GradientResult:
        task, worker = self._task, self._worker
        draws = Draws(self._seed, np.array([worker]), np.array([self._steps]), 1)
        self._steps += 1
        picks = {name: pick[0, 0] for name, pick in task.pick(draws, self._batch).items()}
        if not self.local_buffers:
            gradient = task.get(task.gradient(task.put(params), worker, picks))
            return gradient, None, int(task.samples[worker])
        x = np.empty_like(params, shape=len(self._first))
        x[self._trained], x[self._places] = params, self._own
        gradient = task.get(task.gradient(task.put(x), worker, picks))
        self._own = gradient[self._places]
        return gradient[self._trained], None, int(task.samples[worker])


def _without(layout: Layout, names: tuple[str, ...]) -> Layout:
    """The layout without these tensors; the others keep their order."""
    if not names:
        return layout
    columns = zip(layout.names, layout.shapes, layout.dtypes, strict=True)
    return Layout(*zip(*(each for each in columns if each[0] not in names), strict=True))


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
