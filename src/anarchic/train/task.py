"""The seam between what is trained and how its updates are computed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np

from anarchic.core.arrays import dtype_of, stack, zeros
from anarchic.core.local import Buffers, Held, LocalRule, Sgd, VisitStart, begun
from anarchic.core.options import says_options
from anarchic.core.types import Floats, Integers, Layout, Matrix, Snapshot, Vector
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.train.draws import Draws
from anarchic.train.metrics import Function, Metric

Array = Any  # of the task's own kind: NumPy, or torch on some device
BufferPolicy = Literal["average", "local", "refuse"]
BUFFER_POLICIES = get_args(BufferPolicy)
OWN_BUFFERS = "buffers"  # among what workers keep, (lanes, places): the buffers of each
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

    @property
    def max_lanes(self) -> int | None:
        """How many lanes it likes to compute at once; None: as many as there are."""

    @property
    def threads(self) -> int:
        """How many threads may compute lanes, each ``max_lanes`` of them."""

    def digest(self) -> str:
        """Equal for tasks with the same data and partition; a run is resumed only with its own."""

    def init(self) -> Vector:
        """The parameters at version 0."""

    def to_storage(self, vector: Vector | Integers) -> Array:
        """``vector`` where versions, directions and the server's state are held.

        That is main memory, as it came; or the device, where the task computes on one, so that a
        round need not travel.
        """

    def put(self, array: Array) -> Array:
        """A copy of an array, from storage or of NumPy's, where the task computes."""

    def get(self, array: Array) -> Array:
        """What was computed, in storage."""

    @property
    def batch_key(self) -> Hashable:
        """Tasks with equal keys can be ``joined``."""

    def joined(self, others: Sequence[Self]) -> Self:
        """One task whose workers are this one's and then those of ``others``.

        A worker draws there what it draws in its own task, so that several runs can share lanes.
        """

    def pick(self, draws: Draws, batch: int) -> Picks:
        """Draw the samples (and whatever else is random) of every lane and step."""

    def gradient(self, params: Array, worker: int, picks: Picks) -> Array:
        """One lane, one step, the plainest way: the reference for ``lane_gradients``."""

    def lane_gradients(self, params: Array, workers: Integers, picks: Picks) -> Array:
        """(lanes, dim) from parameters (lanes, dim), the fastest way."""

    def evaluate(self, params: Vector) -> dict[str, float]:
        """What is known of a model: ``loss``, and ``accuracy`` where there is such a thing."""

    def evaluate_all(self, params: Sequence[Vector]) -> list[dict[str, float]]:
        """The same for several models, perhaps faster than one by one."""


@runtime_checkable
class JudgedTask(Task, Protocol):
    """A task with metrics, evaluated on all or some of its test samples, and for each worker."""

    metrics: dict[str, Metric]

    def judged_by(self, metrics: Mapping[str, Metric]) -> Self:
        """The same task with other metrics."""

    @property
    def test_samples(self) -> int: ...

    def tested_on(self, samples: Integers) -> Self:
        """The same task with only these of the test samples."""

    def evaluate_workers(self, params: Vector) -> tuple[str, Floats] | None:
        """What was measured, and its value for every worker; None where none set data aside."""


class OwnBuffersTask(JudgedTask, Protocol):
    """A task whose workers may keep buffers of their own, with which they are evaluated."""

    def evaluate_workers(
        self, params: Vector, own_buffers: Mapping[int, Vector] | None = None
    ) -> tuple[str, Floats] | None: ...


@runtime_checkable
class DataTask(Task, Protocol):
    """A task whose model can be put on other data."""

    def on_data(self, data: Dataset, parts: Sequence[Integers]) -> Self:
        """The same model and loss on other data, as they are, on the CPU."""

    def digest_on(self, device: str, precision: str) -> str:
        """The digest of the same task where it computes on that kind of device."""


@runtime_checkable
class ExactTask(Task, Protocol):
    """A task that knows the gradient of a worker's own loss, without sampling."""

    def exact_gradient(self, params: Array, worker: int) -> Array:
        """grad f_i, over all of the worker's training samples; no image is cropped or flipped."""


class InNumpy:
    """The part of a task that computes in NumPy: its arrays are in storage already."""

    def to_storage(self, vector: Vector | Integers) -> Array:
        return vector

    def put(self, array: Array) -> Array:
        return array.copy()

    def get(self, array: Array) -> Array:
        return array


@says_options
@dataclass(frozen=True)
class LocalWork:
    """How a worker trains: its local rule, its rate eta_L, its batch size.

    ``optimizer`` is a class of ``torch.optim``, or a ``functools.partial`` of one, in the place of
    a local rule; with ``keep_state`` its state stays with the worker from visit to visit. With
    ``shuffle`` the batches of a visit go through the worker's samples in a random order, one epoch
    after another; otherwise each batch is drawn on its own.
    """

    rule: LocalRule = field(default_factory=Sgd)
    lr: float = 0.1
    batch: int = 64
    shuffle: bool = False
    optimizer: InitVar[Callable[..., Any] | None] = None
    keep_state: InitVar[bool] = False

    def __post_init__(self, optimizer: Callable[..., Any] | None, keep_state: bool) -> None:
        if optimizer is not None:
            if self.rule != Sgd():
                raise ConfigError(
                    f"Give a local rule or an optimizer, not both, got {self.rule!r}: a wrapper "
                    "takes one as rule=TorchOptimizer(optimizer)."
                )
            from anarchic.train.torch_optimizer import TorchOptimizer

            object.__setattr__(self, "rule", TorchOptimizer(optimizer, keep_state))
        elif keep_state:
            raise ConfigError(
                "keep_state=True is about an optimizer, and none is given: give one, or use a "
                "local rule that keeps its state, such as Adam(keep_state=True)."
            )
        if callable(self.lr):
            raise ConfigError(
                "lr is one number, eta_L, and got a function: give the number, and the schedule as "
                "a local rule, such as LocalWork(Schedule(function), lr=0.1)."
            )
        if not 0 < self.lr < float("inf") or self.batch < 1:
            raise ConfigError(
                f"A worker needs a positive learning rate and a batch of at least 1, got "
                f"lr={self.lr}, batch={self.batch}."
            )

    def __repr__(self) -> str:
        # Recorded runs are known by it, so what is new stands there only where it is used.
        shuffle = ", shuffle=True" if self.shuffle else ""
        return f"LocalWork(rule={self.rule!r}, lr={self.lr!r}, batch={self.batch!r}{shuffle})"


@dataclass(frozen=True)
class Lanes:
    """Visits to be computed together."""

    seed: int | Integers  # of the run, or (lanes,) where they belong to several
    worker: Integers  # (lanes,)
    visit: Integers  # (lanes,)
    local_steps: Integers  # (lanes,)
    work: list[LocalWork]  # one per lane
    snapshots: list[Snapshot]  # the distinct versions that the lanes start from
    snapshot: Integers  # (lanes,) index into them
    kept: Mapping[str, Matrix]  # (lanes, dim), in storage: what is kept of the last visit

    def __len__(self) -> int:
        return len(self.worker)

    def take(self, lanes: Integers, to_storage: Callable[[Integers], Array] | None = None) -> Lanes:
        """Some of the lanes, with the snapshots that they start from.

        ``to_storage`` is the task's, where that is a device: for an index of NumPy's the host
        would have to wait.
        """
        used, snapshot = np.unique(self.snapshot[lanes], return_inverse=True)
        rows = to_storage(lanes) if to_storage is not None and self.kept else lanes
        seed = self.seed if isinstance(self.seed, int) else self.seed[lanes]
        work = [self.work[lane] for lane in lanes.tolist()]
        snapshots = [self.snapshots[index] for index in used.tolist()]
        kept = {name: matrix[rows] for name, matrix in self.kept.items()}
        numbers = self.worker[lanes], self.visit[lanes], self.local_steps[lanes]
        return Lanes(seed, *numbers, work, snapshots, snapshot, kept)


@dataclass(frozen=True)
class Computed:
    """What the visits gave, in storage: directions G_i, and what local rules send and keep."""

    directions: Matrix  # (lanes, dim)
    extras: dict[str, Matrix]
    kept: dict[str, Matrix]


class Backend(Protocol):
    """A way of carrying visits out."""

    def compute(self, task: Task, lanes: Lanes) -> Computed: ...


def blank(task: Task, lanes: Lanes) -> Computed:
    """Room for the results of ``lanes``; zero where a lane's rule sends or keeps no such vector."""
    like, shape = lanes.snapshots[0].params, (len(lanes), task.layout.dim)
    rules = {work.rule for work in lanes.work}
    return Computed(
        zeros(like, shape),
        {name: zeros(like, shape) for rule in rules for name in rule.shares},
        {name: zeros(like, shape) for rule in rules for name in rule.keeps},
    )


def fill(
    results: Computed, lanes: Integers, task: Task, mean: Array, finished: tuple[Held, Held]
) -> None:
    """Put the results of some lanes in their places."""
    rows = task.to_storage(lanes)
    results.directions[rows] = task.get(mean)
    kept, extras = finished
    for name, matrix in kept.items():
        results.kept[name][rows] = task.get(matrix)
    for name, matrix in extras.items():
        results.extras[name][rows] = task.get(matrix)


def held_at_start(task: Task, lanes: Lanes, rule: LocalRule) -> Held:
    """What ``rule`` holds beside the model at the start of the visits, (lanes, dim) each."""
    like, shape = lanes.snapshots[0].params, (len(lanes), task.layout.dim)
    shared = {
        name: from_snapshots(task, lanes, [snapshot.extras[name] for snapshot in lanes.snapshots])
        for name in rule.shares
    }
    kept = {name: task.put(lanes.kept[name]) for name in rule.keeps}
    return {**shared, **kept, **{name: task.put(zeros(like, shape)) for name in rule.scratch}}


def starts(task: Task, lanes: Lanes) -> Array:
    """(lanes, dim): what visits start from, with the buffers that workers keep to themselves."""
    start = from_snapshots(task, lanes, [snapshot.params for snapshot in lanes.snapshots])
    if OWN_BUFFERS in lanes.kept:
        start[:, task.put(task.layout.buffer_places)] = task.put(lanes.kept[OWN_BUFFERS])
    return start


def buffers_of(task: Task) -> Buffers | None:
    """Where the task's vectors hold buffers; None if nowhere."""
    layout = task.layout
    return Buffers(task.put(layout.buffer_places)) if layout.buffers else None


def begun_rule(task: Task, lanes: Lanes, *, alone: bool = False) -> LocalRule:
    """The local rule of lanes that share it, for these visits; ``alone``: for the only one."""
    rule = lanes.work[0].rule
    if not hasattr(rule, "begin"):
        return rule  # at once: this is on the way of every visit
    versions = np.array([snapshot.version for snapshot in lanes.snapshots])[lanes.snapshot]
    rates = np.array([work.lr for work in lanes.work])
    if alone:
        return begun(rule, VisitStart(float(rates[0]), int(versions[0]), task.layout))
    return begun(rule, VisitStart(rates[:, None], versions[:, None], task.layout))


def from_snapshots(task: Task, lanes: Lanes, vectors: Sequence[Vector]) -> Array:
    """(lanes, dim) where the task computes, from a vector for every snapshot."""
    return task.put(stack(vectors))[task.put(lanes.snapshot)]


def column(task: Task, lanes: Lanes, values: Any) -> Array:
    """(lanes, 1) numbers where the task computes, in the parameters' dtype."""
    dtype = dtype_of(lanes.snapshots[0].params)
    return task.put(np.array(values, dtype)[:, None])


def make_task(
    model: str,
    data: Dataset,
    parts: Sequence[Integers],
    *,
    seed: int = 0,
    device: str = "cpu",
    dtype: Literal["float32", "float64"] = "float32",
    augment: bool | None = None,
    compiled: bool = True,
    buffers: BufferPolicy = "refuse",
    metrics: Mapping[str, Metric | Function | str] | None = None,
    per_worker: bool = False,
    **options: Any,
) -> DataTask:
    """A fresh model of that name on data divided among workers, the same for the same seed.

    Softmax regression on a CPU needs no torch, unless images are cropped and flipped or inputs are
    on disk. ``options`` are others of ``TorchTask``, which explains them all.
    """
    judged: dict[str, Any] = {"metrics": metrics, "per_worker": per_worker}
    crops = data.augment == "crop-flip" if augment is None else augment
    by_torch = crops or data.on_disk or options.keys() - {"precision", "graphs"}  # those of a GPU
    if model == "logistic" and device == "cpu" and not by_torch:
        from anarchic.train.logistic_task import LogisticTask

        return LogisticTask(data, parts, dtype=dtype, compiled=compiled, **judged)
    module = make(model, data, seed=seed)
    from anarchic.train.torch_task import TorchTask

    how: dict[str, Any] = {"device": device, "dtype": dtype, "augment": augment}
    return TorchTask(module, data, parts, buffers=buffers, **how, **judged, **options)
