"""Any ``torch.nn.Module`` with a loss, on anybody's data, as a task."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anarchic.core.options import says_options
from anarchic.core.types import Floats, Integers, Layout, Vector
from anarchic.core.validation import check_choice
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.kernels import find
from anarchic.kernels.switches import matmul_precision
from anarchic.train.compute import Precision
from anarchic.train.description import described
from anarchic.train.draws import STREAMS, Draws
from anarchic.train.engines import (
    Forward,
    GradientEngine,
    Loss,
    Objective,
    choose_engine,
    copy_of,
    cross_entropy,
    drawing,
    has_convolutions,
)
from anarchic.train.evaluation import classes_last, evaluated
from anarchic.train.fit import check_fit, check_loss
from anarchic.train.metrics import Function, Metric, check_metrics
from anarchic.train.noise import step_keys
from anarchic.train.per_worker import HeldOut, hold_out, worker_values
from anarchic.train.probe import (
    likeness,
    look_at,
    refuse_buffers,
    say_alone,
    trained_parameters,
    why_alone,
)
from anarchic.train.samples import WorkerSamples, mean_over, sample_numbers
from anarchic.train.task import BUFFER_POLICIES, Array, BufferPolicy, Picks
from anarchic.train.torch_data import PAD, Rows, TorchData, pick_crops
from anarchic.train.training_copy import training_copy

__all__ = ["Loss", "Precision", "TorchTask", "cross_entropy"]

Switch = Callable[[], AbstractContextManager[None]]

EVALUATION_BATCH = {"cpu": 2_000, "cuda": 20_000}


@says_options
@final
class TorchTask:
    """A module, a loss, and a data set divided among workers.

    The module is copied. Only parameters that require a gradient, or those that ``train`` says by
    name, are trained and travel. ``forward(module, x)`` gives the outputs where ``module(x)`` does
    not. ``buffers`` says what becomes of those that a training step changes: the server averages
    them, or each worker keeps its own and the server averages them only to evaluate the model
    (``local``), or the module is refused. Dropout and torch's other random numbers are drawn by
    (seed, worker, visit, step). Evaluation is in eval mode.

    A module may bring ``lane_gradients(params, x, y) -> gradients``, the closed form of the
    gradient of ``cross_entropy`` over lanes, which then replaces autograd; ``engines`` has the ways
    to a gradient. On a GPU ``precision`` says how matrices are multiplied, and a local step is
    recorded once and replayed unless ``graphs`` is False, for a module whose operators wait for the
    host. ``metrics`` are computed beside accuracy and loss. With ``per_worker`` every worker sets a
    fifth of its samples aside, on which the model is evaluated for each of them.
    """

    def __init__(
        self,
        module: nn.Module,
        data: Dataset,
        parts: Sequence[Integers],
        *,
        loss: Loss = cross_entropy,
        device: str = "cpu",
        dtype: Literal["float32", "float64"] = "float32",
        augment: bool | None = None,
        precision: Precision = "ieee",
        graphs: bool | None = None,
        train: Callable[[str], bool] | None = None,
        forward: Forward | None = None,
        buffers: BufferPolicy = "refuse",
        metrics: Mapping[str, Metric | Function | str] | None = None,
        per_worker: bool = False,
    ) -> None:
        check_choice("policy for buffers", buffers, BUFFER_POLICIES)
        check_loss(loss)
        self.metrics = check_metrics(metrics)
        self._aside: HeldOut | None = None
        if per_worker:
            parts, self._aside = hold_out(sample_numbers(parts, len(data.y_train)), data)
        self.device, self.dtype = _device(device), getattr(torch, dtype)
        self.module = training_copy(module).to(self.device, self.dtype)
        self.loss, self.precision, self.buffers = loss, precision, buffers
        self._hold(WorkerSamples.of(parts, len(data.y_train)))
        self._dataset = data  # as long as it is in use, other tasks find its forms and share them
        crops = data.augment == "crop-flip" if augment is None else augment
        self._data = TorchData.of(data, self.device, self.dtype, crops)
        on_cpu = self.device.type == "cpu"
        self._switch: Switch = nullcontext if on_cpu else partial(matmul_precision, precision)
        self._draws = self._draws_always = False
        self.layout = _layout(trained_parameters(self.module, train), {}, dtype)
        objective, alone = self._objective(forward), False
        tried = self.module if _is_ours(module) else deepcopy(self.module)  # it may write to itself
        called = None if forward is None else partial(forward, tried)
        check_fit(tried, loss, *self._data.extremes(), called)
        if not _is_ours(module):
            objective, alone = self._probed(objective, dtype)
        self._engine = choose_engine(objective, self.device, precision, alone=alone)
        evaluated = copy_of(self.module)
        evaluated.eval()
        self._evaluated = replace(self._engine.objective, module=evaluated)
        step: Callable[[Picks], Tensor] = partial(_step, self._engine, self._data, self._switch)
        # A recording reads no file.
        eager = on_cpu or alone or graphs is False or self._data.on_disk
        recorded = None if eager else find("recorded_cuda")
        self._step = step if recorded is None else recorded(step)

    def _objective(self, forward: Forward | None) -> Objective:
        on_cpu = self.device.type == "cpu"
        last = on_cpu and has_convolutions(self.module)  # faster there
        return Objective(self.module, self.loss, self.layout, forward, channels_last=last)

    def _probed(self, objective: Objective, dtype: str) -> tuple[Objective, bool]:
        """The objective with what a look at the module has shown, and whether lanes go alone."""
        picks = self.pick(Draws(0, np.zeros(2, int), np.arange(2), 1), 2)
        x, y = self._data.batch({name: pick[:, 0] for name, pick in picks.items()})
        keys = self.put(np.arange(2))
        with self._switch():
            found, objective = look_at(objective, (x[0], y[0]), (x[1], y[1]), keys[0])
            if found.buffers and self.buffers == "refuse":
                refuse_buffers(self.module, found.buffers)
            trained = {name: self.module.get_parameter(name) for name in self.layout.names}
            changing = {name: self.module.get_buffer(name) for name in found.buffers}
            self._draws, self._draws_always = found.draws, found.always
            self.layout = _layout(trained, changing, dtype)
            objective = replace(objective, layout=self.layout, draws=found.draws)
            if self.device.type == "cpu" and has_convolutions(self.module):
                return objective, False  # they go alone in any case
            params = self.put(np.stack([self.init()] * 2))
            why = why_alone(objective, params, x, y, keys if found.draws else None)
        if why is not None:
            say_alone(self.module, why)
        return objective, why is not None

    @property
    def threads(self) -> int:
        return self._engine.threads

    @property
    def max_lanes(self) -> int | None:
        return self._engine.max_lanes

    @property
    def samples(self) -> Integers:
        return self._held.counts

    def _hold(self, held: WorkerSamples) -> None:
        """Say which samples the workers hold."""
        self._held, self._index = held, self.put(held.index)

    @property
    def batch_key(self) -> Hashable:
        alike = likeness(self.module, self.layout)
        how = self.loss, self._evaluated.forward, self.precision, self.buffers
        return self._data, alike, self.layout, *how

    def joined(self, others: Sequence[TorchTask]) -> TorchTask:
        joint = copy(self)
        joint._hold(self._held.joined([other._held for other in others]))
        return joint

    def on_data(self, data: Dataset, parts: Sequence[Integers]) -> TorchTask:
        """The same model and loss on other data, as they are, on the CPU."""
        here = set(self.layout.names)
        return TorchTask(
            self.module, data, parts, loss=self.loss, augment=False, train=here.__contains__,
            forward=self._evaluated.forward, buffers=self.buffers,
        )  # fmt: skip

    def digest(self) -> str:
        return self.digest_on(self.device.type, self.precision)

    def digest_on(self, device: str, precision: str) -> str:
        data, held = self._data, self._held
        how = f"{data.crops} {device} {precision}"
        if self.layout.buffers:
            how += f" {self.buffers}"
        if self.loss is not cross_entropy:  # runs with the default were recorded without a name
            how += f" loss={described(self.loss)}"
        if (forward := self._evaluated.forward) is not None:
            how += f" forward={described(forward)}"
        return held.digest(how, *map(_numpy, data.seen(self._index, held.some)))

    def init(self) -> Vector:
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        tensors = {name: _numpy(named[name].to(self.dtype)) for name in self.layout.names}
        return self.layout.join(tensors)

    @property
    def keeps_buffers(self) -> bool:
        """Whether a worker starts its visits from buffers of its own."""
        return self.buffers == "local" and bool(self.layout.buffers)

    def to_storage(self, vector: Vector | Integers) -> Array:
        return vector if self.device.type == "cpu" else self.put(vector)

    def put(self, array: Array) -> Array:
        if isinstance(array, Tensor):
            return array.clone()
        if self.device.type == "cpu":
            return torch.tensor(array)
        # From pinned memory, so that the host need not wait until the device comes to it.
        tensor = torch.from_numpy(np.ascontiguousarray(array)).pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def get(self, array: Array) -> Array:
        return _numpy(array) if self.device.type == "cpu" else array

    def pick(self, draws: Draws, batch: int) -> Picks:
        kernels = find("pick_samples_cuda"), find("pick_crops_cuda")
        if self.device.type == "cuda" and all(kernels) and not draws.in_epochs:
            return self._pick_by_kernels(*kernels, draws, batch)
        picks = {"sample": self._index[self._held.pick(draws, batch, self.put)]}
        if self._data.crops:
            bits = replace(self._held.own(draws), put=self.put).bits("augment", 3 * batch)
            picks["crop"] = pick_crops(bits)
        return picks | self._pick_keys(draws)

    def _pick_keys(self, draws: Draws) -> Picks:
        """The keys of whatever the module draws, (lanes, steps)."""
        own = replace(self._held.own(draws), put=self.put)
        return {"noise": step_keys(own)} if self._draws else {}

    def _pick_by_kernels(self, samples: Any, crops: Any, draws: Draws, batch: int) -> Picks:
        lanes, steps = self.put(self._held.lane_numbers(draws)), draws.steps
        picks = {"sample": samples(lanes, self._index, steps, batch, STREAMS["samples"])}
        if self._data.crops:
            picks["crop"] = crops(lanes, steps, batch, STREAMS["augment"], 2 * PAD + 1)
        return picks | self._pick_keys(draws)

    def gradient(self, params: Array, worker: int, picks: Picks) -> Array:
        x, y = self._data.batch({name: pick[None] for name, pick in picks.items()})
        with self._switch():
            return self._engine.objective.gradient(params, x[0], y[0], picks.get("noise"))

    def exact_gradient(self, params: Array, worker: int) -> Array:
        if self._draws:
            raise ConfigError(
                "A module that draws random numbers, such as dropout, has no exact gradient: "
                "measure a model without them."
            )

        def gradient(own: Integers) -> Array:
            picks = {"sample": self.put(own)}
            if self._data.crops:  # the middle, not flipped
                picks["crop"] = self.put(np.tile(np.array([PAD, PAD, 0]), (len(own), 1)))
            return self.gradient(params, worker, picks)

        return mean_over(self._held.pieces(worker), gradient)

    def lane_gradients(self, params: Array, workers: Integers, picks: Picks) -> Array:
        return self._step({"params": params, **picks})

    def evaluate_all(self, params: Sequence[Vector]) -> list[dict[str, float]]:
        return [self.evaluate(vector) for vector in params]

    def evaluate(self, params: Vector) -> dict[str, float]:
        found: dict[str, float] = {}
        for part, samples in self._data.held_out.items():
            told = evaluated(self._pairs(params, *samples), self.loss, self.metrics)
            found |= {part + name: value for name, value in told.items()}
        return found

    def _pairs(self, params: Array, inputs: Rows, targets: Rows) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and targets of samples, batch by batch."""
        objective = self._evaluated
        # A module that draws in eval mode, too, draws the same for all, so that evaluations agree.
        key = self.put(np.zeros(1, int))[0] if self._draws_always else None
        tensors = objective.split(torch.as_tensor(params, dtype=self.dtype, device=self.device))
        batch = EVALUATION_BATCH[self.device.type]
        for start in range(0, len(targets), batch):
            x, y = inputs[start : start + batch], targets[start : start + batch]
            with torch.no_grad(), self._switch(), drawing(key, objective.module):
                outputs = objective.outputs(tensors, x)
            yield outputs, y

    def _own_pairs(
        self, aside: HeldOut, params: Vector, own_buffers: Mapping[int, Vector]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and targets of what workers set aside, each with its own buffers."""
        places = self.put(self.layout.buffer_places)
        first = self.init()[self.layout.buffer_places]
        model = torch.as_tensor(params, dtype=self.dtype, device=self.device).clone()
        for worker, samples in aside.by_worker():
            own = torch.as_tensor(own_buffers.get(worker, first))
            model[places] = own.to(self.device, self.dtype)
            yield from self._pairs(model, *self._data.samples(self.put(samples)))

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Those of their roles; none where workers have no names or set nothing aside."""
        return self._aside.names if self._aside is not None else ()

    def judged_by(self, metrics: Mapping[str, Metric]) -> TorchTask:
        """The same task with other metrics."""
        judged = copy(self)
        judged.metrics = dict(metrics)
        return judged

    @property
    def test_samples(self) -> int:
        return len(self._data.held_out[""][1])

    def tested_on(self, samples: Integers) -> TorchTask:
        """The same task with only these of the test samples."""
        some, index = copy(self), self.put(samples)
        x, y = self._data.held_out[""]
        some._data = replace(self._data, held_out={**self._data.held_out, "": (x[index], y[index])})
        return some

    def evaluate_workers(
        self, params: Vector, own_buffers: Mapping[int, Vector] | None = None
    ) -> tuple[str, Floats] | None:
        """Accuracy or loss of every worker on what it set aside; None where nobody did.

        ``own_buffers`` are those that workers keep, by worker, in the order of the layout's
        ``buffer_places``; a worker that has none yet is judged with those that a task starts from.
        """
        if self._aside is None:
            return None
        if own_buffers is None:
            pairs = self._pairs(params, *self._data.samples(self.put(self._aside.index)))
        else:
            pairs = self._own_pairs(self._aside, params, own_buffers)
        outputs, targets = (torch.cat(each).cpu() for each in zip(*pairs, strict=True))
        outputs = classes_last(outputs, targets, self.loss)
        return worker_values(self._aside, outputs, targets, self.loss)


def _step(engine: GradientEngine, data: TorchData, switch: Switch, inputs: Picks) -> Tensor:
    """Gather the batches of a local step and give the gradients: what a GPU records as one."""
    with switch():
        keys = (inputs["noise"],) if "noise" in inputs else ()
        return engine.function(inputs["params"], *data.batch(inputs), *keys)


def _numpy(array: Tensor) -> NDArray[Any]:
    found: NDArray[Any] = array.detach().cpu().numpy()
    return found


def _device(name: str) -> torch.device:
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(f"There is no device {name!r}; there are cpu and cuda.")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"Device {name!r} was asked for, but torch sees no GPU: use cpu.")
    return torch.device(name)


def _is_ours(module: nn.Module) -> bool:
    """Whether the module is one of ours, of which all is known that a look would find."""
    return type(module).__module__.startswith("anarchic.models.")


def _layout(trained: Mapping[str, Tensor], buffers: Mapping[str, Tensor], dtype: str) -> Layout:
    name = {"float32": "F32", "float64": "F64"}[dtype]
    tensors = {n: (tuple(t.shape), name) for n, t in {**trained, **buffers}.items()}
    return Layout.of(tensors, buffers=buffers)
