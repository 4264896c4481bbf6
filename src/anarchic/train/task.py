"""The seam between what is trained and how its updates are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anarchic.core.local import Held, LocalRule, Sgd
from anarchic.core.types import Integers, Layout, Matrix, Snapshot, Vector
from anarchic.errors import ConfigError
from anarchic.train.draws import Draws

Array = Any  # of the task's own kind: NumPy, or torch on some device
Picks = dict[str, Array]  # what was drawn for every lane and step, (lanes, steps, ...)


class Task(Protocol):
    """A model, its loss and every worker's data.

    The methods that take ``params`` get arrays made by ``put``; leading axes are lanes, that is
    visits computed together, each with parameters and data of its own.
    """

    @property
    def layout(self) -> Layout: ...
    @property
    def samples(self) -> Integers:
        """(workers,) training samples of each worker, n_i."""

    def digest(self) -> str:
        """Equal for tasks with the same data, dealt alike; a run is resumed only with its own."""

    def init(self) -> Vector:
        """The parameters at version 0."""

    def put(self, array: NDArray[Any]) -> Array:
        """A copy of ``array`` where the task computes."""

    def get(self, array: Array) -> NDArray[Any]:
        """The way back."""

    def pick(self, draws: Draws, batch: int) -> Picks:
        """Draw the samples (and whatever else is random) of every lane and step."""

    def gradient(self, params: Array, worker: int, picks: Picks) -> Array:
        """One lane, one step, the plainest way: the reference for ``lane_gradients``."""

    def lane_gradients(self, params: Array, workers: Integers, picks: Picks) -> Array:
        """(lanes, dim) from parameters (lanes, dim), the fastest way."""

    def evaluate(self, params: Vector) -> dict[str, float]:
        """What is known of a model: ``loss``, and ``accuracy`` where there is such a thing."""


@dataclass(frozen=True)
class LocalWork:
    """How a worker trains: its local rule, its rate eta_L, its batch size."""

    rule: LocalRule = field(default_factory=Sgd)
    lr: float = 0.1
    batch: int = 64

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf") or self.batch < 1:
            raise ConfigError(
                f"A worker needs a positive learning rate and a batch of at least 1, got "
                f"lr={self.lr}, batch={self.batch}."
            )


@dataclass(frozen=True)
class Lanes:
    """Visits to be computed together."""

    seed: int
    worker: Integers  # (lanes,)
    visit: Integers  # (lanes,)
    local_steps: Integers  # (lanes,)
    work: list[LocalWork]  # a lane each
    snapshots: list[Snapshot]  # the distinct versions that the lanes start from
    snapshot: Integers  # (lanes,) index into them
    kept: Mapping[str, Matrix]  # (lanes, dim) what local rules remember of the last visit

    def __len__(self) -> int:
        return len(self.worker)

    def take(self, lanes: Integers) -> Lanes:
        """Some of the lanes."""
        return Lanes(
            self.seed,
            self.worker[lanes],
            self.visit[lanes],
            self.local_steps[lanes],
            [self.work[lane] for lane in lanes.tolist()],
            self.snapshots,
            self.snapshot[lanes],
            {name: matrix[lanes] for name, matrix in self.kept.items()},
        )


@dataclass(frozen=True)
class Computed:
    """What the visits gave: directions G_i, and what local rules send and keep."""

    directions: Matrix  # (lanes, dim)
    extras: dict[str, Matrix]
    kept: dict[str, Matrix]


class Backend(Protocol):
    """A way of carrying visits out."""

    def compute(self, task: Task, lanes: Lanes) -> Computed: ...


def blank(task: Task, lanes: Lanes) -> Computed:
    """Room for the results of ``lanes``; zero where a lane's rule sends or keeps no such vector."""
    shape, dtype = (len(lanes), task.layout.dim), lanes.snapshots[0].params.dtype
    rules = {work.rule for work in lanes.work}
    return Computed(
        np.empty(shape, dtype),
        {name: np.zeros(shape, dtype) for rule in rules for name in rule.shares},
        {name: np.zeros(shape, dtype) for rule in rules for name in rule.keeps},
    )


def fill(
    results: Computed, lanes: Integers, task: Task, mean: Array, finished: tuple[Held, Held]
) -> None:
    """Put the results of some lanes in their places."""
    results.directions[lanes] = task.get(mean)
    kept, extras = finished
    for name, matrix in kept.items():
        results.kept[name][lanes] = task.get(matrix)
    for name, matrix in extras.items():
        results.extras[name][lanes] = task.get(matrix)


def held_at_start(task: Task, lanes: Lanes, rule: LocalRule) -> Held:
    """What ``rule`` holds beside the model at the start of the visits, (lanes, dim) each."""
    zero = np.zeros((len(lanes), task.layout.dim), lanes.snapshots[0].params.dtype)
    shared = {
        name: np.stack([snapshot.extras[name] for snapshot in lanes.snapshots])[lanes.snapshot]
        for name in rule.shares
    }
    kept = {name: lanes.kept[name] for name in rule.keeps}
    scratch = dict.fromkeys(rule.scratch, zero)
    return {name: task.put(matrix) for name, matrix in {**shared, **kept, **scratch}.items()}
