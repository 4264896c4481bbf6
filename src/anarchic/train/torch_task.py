"""Any ``torch.nn.Module`` with a loss, on anybody's data, as a task."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anarchic.core.types import Floats, Integers, Layout, Vector
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.kernels import find
from anarchic.kernels.switches import matmul_precision
from anarchic.train.compute import Precision
from anarchic.train.draws import STREAMS, Draws
from anarchic.train.engines import GradientEngine, Loss, Objective, choose_engine, cross_entropy
from anarchic.train.metrics import Function, Metric, check_metrics, measure
from anarchic.train.per_worker import HeldOut, hold_out, worker_values
from anarchic.train.samples import WorkerSamples
from anarchic.train.task import Array, Picks
from anarchic.train.torch_data import PAD, TorchData, pick_crops

__all__ = ["Loss", "Precision", "TorchTask", "cross_entropy"]

Switch = Callable[[], AbstractContextManager[None]]

EVALUATION_BATCH = {"cpu": 2_000, "cuda": 20_000}


@final
class TorchTask:
    """A module, a loss, and a data set dealt to workers.

    Only parameters that require a gradient are trained and travel; buffers stay as they are. A
    module may bring ``lane_gradients(params, x, y) -> gradients``, the closed form of the gradient
    of ``cross_entropy`` over lanes, which then replaces autograd; ``engines`` has the ways to a
    gradient. On a GPU ``precision`` says how matrices are multiplied, and a local step is recorded
    once and replayed unless ``graphs`` is False, for a module whose operators wait for the host.
    ``metrics`` are computed beside accuracy and loss. With ``per_worker`` every worker sets a fifth
    of its samples aside, on which the model is evaluated for each of them.
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
        metrics: Mapping[str, Metric | Function | str] | None = None,
        per_worker: bool = False,
    ) -> None:
        _check_module(module)
        self.metrics = check_metrics(metrics)
        self._aside: HeldOut | None = None
        if per_worker:
            parts, self._aside = hold_out(parts)
        self.device, self.dtype = _device(device), getattr(torch, dtype)
        self.module, self.loss, self.precision = module.to(self.device, self.dtype), loss, precision
        name = {"float32": "F32", "float64": "F64"}[dtype]
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.layout = Layout.of({n: (tuple(p.shape), name) for n, p in trained.items()})
        self._hold(WorkerSamples.of(parts, len(data.y_train)))
        self._dataset = data  # as long as it is in use, other tasks find its forms and share them
        crops = data.augment == "crop-flip" if augment is None else augment
        self._data = TorchData.of(data, self.device, self.dtype, crops)
        self._engine = choose_engine(Objective(module, loss, self.layout), self.device, precision)
        on_cpu = self.device.type == "cpu"
        self._switch: Switch = nullcontext if on_cpu else partial(matmul_precision, precision)
        step: Callable[[Picks], Tensor] = partial(_step, self._engine, self._data, self._switch)
        recorded = None if on_cpu or graphs is False else find("recorded_cuda")
        self._step = step if recorded is None else recorded(step)

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
        return self._data, type(self.module), self.layout, self.loss, self.precision

    def joined(self, others: Sequence[TorchTask]) -> TorchTask:
        joint = copy(self)
        joint._hold(self._held.joined([other._held for other in others]))
        return joint

    def on_data(self, data: Dataset, parts: Sequence[Integers]) -> TorchTask:
        """The same model and loss on other data, as they are, on the CPU."""
        return TorchTask(deepcopy(self.module), data, parts, loss=self.loss, augment=False)

    def digest(self) -> str:
        data, index, held = self._data, self._index, self._held
        how = f"{data.crops} {self.device.type} {self.precision}"
        return held.digest(how, _numpy(data.y[index]), _numpy(data.x[index[held.some]]))

    def init(self) -> Vector:
        trained = dict(self.module.named_parameters())
        return self.layout.join({n: _numpy(trained[n]) for n in self.layout.names})

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
        if self.device.type == "cuda" and all(kernels):
            return self._pick_by_kernels(*kernels, draws, batch)
        picks = {"sample": self._index[self._held.pick(draws, batch, self.put)]}
        if self._data.crops:
            bits = replace(self._held.own(draws), put=self.put).bits("augment", 3 * batch)
            picks["crop"] = pick_crops(bits)
        return picks

    def _pick_by_kernels(self, samples: Any, crops: Any, draws: Draws, batch: int) -> Picks:
        lanes, steps = self.put(self._held.lane_numbers(draws)), draws.steps
        picks = {"sample": samples(lanes, self._index, steps, batch, STREAMS["samples"])}
        if self._data.crops:
            picks["crop"] = crops(lanes, steps, batch, STREAMS["augment"], 2 * PAD + 1)
        return picks

    def gradient(self, params: Array, worker: int, picks: Picks) -> Array:
        x, y = self._data.batch({name: pick[None] for name, pick in picks.items()})
        with self._switch():
            return self._engine.objective.gradient(params, x[0], y[0])

    def lane_gradients(self, params: Array, workers: Integers, picks: Picks) -> Array:
        return self._step({"params": params, **picks})

    def evaluate_all(self, params: Sequence[Vector]) -> list[dict[str, float]]:
        return [self.evaluate(vector) for vector in params]

    def evaluate(self, params: Vector) -> dict[str, float]:
        sums, count = torch.zeros(2, dtype=torch.float64, device=self.device), 0
        kept = []
        for outputs, y in self._tested(params):
            sums[0] += (outputs.argmax(-1) == y).sum()
            sums[1] += self.loss(outputs, y) * len(y)
            count += len(y)
            if self.metrics:
                kept.append(outputs)
        accuracy, loss = (sums / count).tolist()
        found = {"accuracy": accuracy, "loss": loss}
        if kept and isfinite(loss):  # otherwise the run has diverged, which is said elsewhere
            found |= measure(self.metrics, torch.cat(kept), self._data.y_test)
        return found

    def _tested(self, params: Vector) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and targets of the test samples, batch by batch."""
        objective = self._engine.objective
        tensors = objective.split(torch.as_tensor(params, dtype=self.dtype, device=self.device))
        inputs, labels = self._data.x_test, self._data.y_test
        batch = EVALUATION_BATCH[self.device.type]
        with torch.no_grad(), self._switch():
            for start in range(0, len(labels), batch):
                x, y = inputs[start : start + batch], labels[start : start + batch]
                yield objective.outputs(tensors, x), y

    def judged_by(self, metrics: Mapping[str, Metric]) -> TorchTask:
        """The same task with other metrics."""
        judged = copy(self)
        judged.metrics = dict(metrics)
        return judged

    @property
    def test_samples(self) -> int:
        return len(self._data.y_test)

    def tested_on(self, samples: Integers) -> TorchTask:
        """The same task with only these of the test samples."""
        some, index = copy(self), self.put(samples)
        x_test, y_test = self._data.x_test[index], self._data.y_test[index]
        some._data = replace(self._data, x_test=x_test, y_test=y_test)
        return some

    def evaluate_workers(self, params: Vector) -> tuple[str, Floats] | None:
        """Accuracy or loss of every worker on what it set aside; None where nobody did."""
        if self._aside is None:
            return None
        index, data, own = self.put(self._aside.index), self._data, copy(self)
        x = data.x[index, ..., PAD:-PAD, PAD:-PAD] if data.crops else data.x[index]
        own._data = replace(data, x_test=x, y_test=data.y[index])
        pairs = zip(*own._tested(params), strict=True)
        outputs, targets = (torch.cat(each).cpu() for each in pairs)
        return worker_values(self._aside, outputs, targets, self.loss)


def _step(engine: GradientEngine, data: TorchData, switch: Switch, inputs: Picks) -> Tensor:
    """Gather the batches of a local step and give the gradients: what a GPU records as one."""
    with switch():
        return engine.function(inputs["params"], *data.batch(inputs))


def _numpy(array: Tensor) -> NDArray[Any]:
    found: NDArray[Any] = array.detach().cpu().numpy()
    return found


def _device(name: str) -> torch.device:
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(f"There is no device {name!r}; there are cpu and cuda.")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"Device {name!r} was asked for, but torch sees no GPU: use cpu.")
    return torch.device(name)


def _check_module(module: nn.Module) -> None:
    """Refuse what a visit cannot reproduce, or what would be lost on the way to the server."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats:
            raise ConfigError(
                f"Module {name!r} is a {type(part).__name__}: its running statistics change "
                "outside the gradient and would not reach the server. Use nn.GroupNorm instead."
            )
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise ConfigError(
                f"Module {name!r} is a {type(part).__name__} with p={part.p}: its masks come from "
                "a global generator, so that a visit could not be repeated. Set p=0."
            )
        if isinstance(part, nn.RNNBase):
            raise ConfigError(
                f"Module {name!r} is an nn.{type(part).__name__}, which has no batching rule over "
                "parameters: write the cell with plain operators, as anarchic.models.lstm does."
            )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigError(f"{type(module).__name__} has no parameter that requires a gradient.")
