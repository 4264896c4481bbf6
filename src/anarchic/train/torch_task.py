"""Any ``torch.nn.Module`` with a loss, on anybody's data, as a task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from threading import local
from typing import Any, Literal, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from anarchic.core.types import Integers, Layout, Vector
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.kernels.logistic_sparse import Sparse, sparse
from anarchic.kernels.recorded import Recorded
from anarchic.models.logistic import Logistic
from anarchic.train.draws import Draws
from anarchic.train.images import crop_and_flip, padded, pick_crops
from anarchic.train.task import Array, Picks

Loss = Callable[[Tensor, Tensor], Tensor]

Precision = Literal["ieee", "tf32", "bf16"]

EVALUATION_BATCH = {"cpu": 2_000, "cuda": 20_000}
OWN_THREADS = torch.get_num_threads()  # torch's choice, before a run makes another


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood; under vmap a third of the operators of torch's own."""
    logs = torch.log_softmax(outputs, dim=-1)
    return -logs.gather(-1, labels.unsqueeze(-1)).mean()


@final
class TorchTask:
    """A module, a loss, and a data set dealt to workers.

    Only parameters that require a gradient are trained and travel; buffers stay as they are. A
    module may bring ``lane_gradients(params, x, y) -> gradients``, the closed form of the gradient
    of ``cross_entropy`` over lanes, which then replaces autograd; on a CPU it is given NumPy
    arrays, whose small products are several times as fast as torch's. On a GPU ``precision`` says
    how matrices are multiplied, and a local step is recorded once and replayed unless ``graphs`` is
    False, for a module whose operators wait for the host. ``compiled`` lets loops be compiled by
    Numba, if that is installed and the data suit; it takes a second to load.
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
        compiled: bool = True,
    ) -> None:
        _check_module(module)
        self.device, self.dtype = _device(device), getattr(torch, dtype)
        self.module = module.to(self.device, self.dtype)
        self.loss = loss
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        name = {"float32": "F32", "float64": "F64"}[dtype]
        self.layout = Layout.of({n: (tuple(p.shape), name) for n, p in trained.items()})
        self.precision = precision
        self._crops = data.augment == "crop-flip" if augment is None else augment
        on_cpu = self.device.type == "cpu"
        self._closed_form = None
        if loss is cross_entropy:
            self._closed_form = _closed_form(module, self.device, dtype, precision)
        in_numpy = self._closed_form is not None and getattr(module, "in_numpy", False)
        self._uses_numpy = on_cpu and not self._crops and in_numpy
        if not on_cpu:  # for the process: torch has no narrower switch
            torch.backends.cuda.matmul.allow_tf32 = precision != "ieee"
            torch.backends.cudnn.allow_tf32 = precision != "ieee"
        self._kernels = not on_cpu and find_spec("triton") is not None
        self._recorded = None if on_cpu or graphs is False else Recorded(self._gradients)

        # Over lanes with weights of their own, vmap makes grouped convolutions, slow on a CPU.
        self._by_lane = on_cpu and self._closed_form is None and _has_convolutions(module)
        self._in_torch = on_cpu and self._closed_form is not None and not self._uses_numpy
        # What more lanes than that work with would not stay in a core's own cache.
        few = 8 if self._uses_numpy else 12 if self._in_torch else None
        self.max_lanes = 1 if self._by_lane else few

        self.samples: Integers = np.array([len(part) for part in parts], np.int64)
        self._worker = np.arange(len(parts))  # as random numbers know them
        dealt = np.concatenate([np.asarray(part) for part in parts])
        _check_dealt(self.samples, dealt, len(data.y_train))
        self._deal(dealt)
        self._dataset = data  # as long as it is in use, others find it and share it
        self._data = _resident(data, self.device, self.dtype, self._crops)
        self._x: Any = self._data.x
        self._y: Any = self._data.y
        self._sparse = None
        if self._uses_numpy:
            self._x, self._y = self._x.numpy(), self._y.numpy()
            self._sparse = _sparse(module, self._data) if compiled else None

    @property
    def fitting_threads(self) -> int:
        """NumPy's arrays are small: threads would wait for each other."""
        return 1 if self._uses_numpy else OWN_THREADS

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self._by_lane or self._in_torch else 1

    def _deal(self, dealt: Integers) -> None:
        """Say which samples the workers hold, one worker after another."""
        self._first = np.cumsum([0, *self.samples[:-1]])
        self._dealt = self.put(dealt)

    @property
    def batch_key(self) -> Hashable:
        how = self.precision, self._sparse is None
        return self._data, type(self.module), self.layout, self.loss, *how

    def joined(self, others: Sequence[TorchTask]) -> TorchTask:
        tasks = [self, *others]
        joint = copy(self)
        joint.samples = np.concatenate([task.samples for task in tasks])
        joint._worker = np.concatenate([task._worker for task in tasks])
        joint._deal(np.concatenate([_numpy(task._dealt) for task in tasks]))
        return joint

    def digest(self) -> str:
        """Of all labels and about a thousand inputs, in the order in which they are dealt."""
        parts = hashlib.sha256(
            f"{self.samples.tolist()} {self._crops} {self.device.type} {self.precision}".encode()
        )
        some = self._dealt[:: max(1, len(self._dealt) // 1000)]
        for array in (self._y[self._dealt], self._x[some]):
            parts.update(np.ascontiguousarray(_numpy(array)).data)
        return parts.hexdigest()

    def init(self) -> Vector:
        trained = dict(self.module.named_parameters())
        return self.layout.join({n: _numpy(trained[n]) for n in self.layout.names})

    def to_storage(self, vector: Vector | Integers) -> Array:
        return vector if self.device.type == "cpu" else self.put(vector)

    def put(self, array: Array) -> Array:
        if self._uses_numpy:
            return array.copy()
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
        if self._kernels:
            return self._pick_by_kernel(draws, batch)
        lanes = (len(draws.worker), 1, 1)
        held = self.put(self.samples[draws.worker].reshape(lanes))
        first = self.put(self._first[draws.worker].reshape(lanes))
        worker, fast = self._worker[draws.worker], self._sparse is not None
        draws = replace(draws, worker=worker, put=self.put, fast=fast)
        picks = {"sample": self._dealt[first + draws.below(held, "samples", batch)]}
        if self._crops:
            picks["crop"] = pick_crops(torch.as_tensor(draws.bits("augment", 3 * batch)))
        return picks

    def _pick_by_kernel(self, draws: Draws, batch: int) -> Picks:
        from anarchic.kernels.picks_cuda import lane_numbers, pick_crops, pick_samples

        of_lane, known = draws.worker, replace(draws, worker=self._worker[draws.worker])
        lanes = self.put(lane_numbers(known, self.samples[of_lane], self._first[of_lane]))
        picks = {"sample": pick_samples(lanes, self._dealt, draws.steps, batch)}
        if self._crops:
            picks["crop"] = pick_crops(lanes, draws.steps, batch)
        return picks

    def gradient(self, params: Array, worker: int, picks: Picks) -> Array:
        x, y = self._batch({name: pick[None] for name, pick in picks.items()})
        flat = self._gradient(*map(torch.as_tensor, (params, x[0], y[0])))
        return flat.numpy() if self._uses_numpy else flat

    def _gradient(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        leaves = {
            name: tensor.detach().requires_grad_() for name, tensor in self._split(params).items()
        }
        gradients = torch.autograd.grad(self._loss_of(leaves, x, y), list(leaves.values()))
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def lane_gradients(self, params: Array, workers: Integers, picks: Picks) -> Array:
        inputs = {"params": params, **picks}
        return self._gradients(inputs) if self._recorded is None else self._recorded(inputs)

    @property
    def lane_visits(self) -> Callable[[Array, Array, Integers, Picks], Array] | None:
        """The mean gradients of whole visits of plain SGD, where there is a loop for them."""
        if self._sparse is None:
            return None
        visits = self._sparse.visits
        return lambda start, rates, steps, picks: visits(start, rates, steps, picks["sample"])

    def _gradients(self, inputs: Picks) -> Array:
        picks = dict(inputs)
        params = picks.pop("params")
        x, y = self._batch(picks)
        if self._closed_form is not None:
            return self._closed_form(params, x, y)
        if self._by_lane:
            return torch.stack([self._gradient(*lane) for lane in zip(params, x, y, strict=True)])
        try:
            gradients = vmap(grad(self._loss_of))(self._split(params), x, y)
        except RuntimeError as error:
            if str(error).startswith("vmap:"):
                raise _no_lanes(self.module, str(error)) from error
            raise
        return torch.cat([gradients[name].flatten(1) for name in self.layout.names], dim=1)

    def evaluate_all(self, params: Sequence[Vector]) -> list[dict[str, float]]:
        if not self._uses_numpy:
            return [self.evaluate(vector) for vector in params]
        if not params:
            return []
        module: Any = self.module
        inputs, labels = self._data.x_test.numpy(), self._data.y_test.numpy()
        found: list[dict[str, float]] = module.lane_metrics(np.stack(params), inputs, labels)
        return found

    def evaluate(self, params: Vector) -> dict[str, float]:
        if self._uses_numpy:
            return self.evaluate_all([params])[0]
        tensors = self._split(torch.as_tensor(params, dtype=self.dtype, device=self.device))
        inputs, labels = self._data.x_test, self._data.y_test
        batch = EVALUATION_BATCH[self.device.type]
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for start in range(0, len(labels), batch):
                x, y = inputs[start : start + batch], labels[start : start + batch]
                outputs = functional_call(self.module, tensors, (self._model_input(x),))
                sums[0] += (outputs.argmax(-1) == y).sum()
                sums[1] += self.loss(outputs, y) * len(y)
        accuracy, loss = (sums / len(labels)).tolist()
        return {"accuracy": accuracy, "loss": loss}

    def _loss_of(self, tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        module = _own_copy(self.module) if self._by_lane else self.module
        return self.loss(functional_call(module, tensors, (self._model_input(x),)), y)

    def _split(self, params: Tensor) -> dict[str, Tensor]:
        lead = params.shape[:-1]
        return {
            name: params[..., where].reshape(*lead, *shape)
            for (name, where), shape in zip(
                self.layout.slices.items(), self.layout.shapes, strict=True
            )
        }

    def _batch(self, picks: Picks) -> tuple[Array, Array]:
        """Inputs (lanes, batch, ...) and labels (lanes, batch)."""
        sample = picks["sample"]
        flat = sample.reshape(-1)
        if self._uses_numpy:
            return self._x.take(flat, 0).reshape(*sample.shape, -1), self._y.take(sample)
        if self._crops:
            x = self._crop(flat, picks["crop"].reshape(-1, 3))
        else:
            x = self._x.index_select(0, flat)
        return x.view(*sample.shape, *x.shape[1:]), self._y.index_select(0, flat).view(sample.shape)

    def _crop(self, index: Tensor, crops: Tensor) -> Tensor:
        if not self._kernels:
            return crop_and_flip(self._x, index, crops)
        from anarchic.kernels.crops_cuda import crop_and_flip as by_kernel

        return by_kernel(self._x, index, crops, self._x.dtype)

    def _model_input(self, x: Tensor) -> Tensor:
        """Tokens are kept as bytes and widened here; convolutions on a CPU like channels last."""
        if self._by_lane and x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x if x.is_floating_point() else x.long()


@dataclass(frozen=True, eq=False)
class _Resident:
    """A data set where it is used; shared by all tasks on it."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor

    @cached_property
    def sparse(self) -> Sparse | None:
        return sparse(self.x.flatten(1).numpy(), self.y.numpy())


_RESIDENTS: WeakKeyDictionary[Dataset, dict[Hashable, _Resident]] = WeakKeyDictionary()


def _resident(data: Dataset, device: torch.device, dtype: torch.dtype, crops: bool) -> _Resident:
    known = _RESIDENTS.setdefault(data, {})
    key = device, dtype, crops
    if key not in known:
        x = _inputs(data.x_train, device, dtype)
        known[key] = _Resident(
            padded(x) if crops else x,
            _labels(data.y_train, device),
            _inputs(data.x_test, device, dtype),
            _labels(data.y_test, device),
        )
    return known[key]


def _inputs(x: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    return tensor.to(device, dtype if tensor.is_floating_point() else None)


def _labels(y: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(y, dtype=np.int64)).to(device)


def _numpy(array: Array) -> NDArray[Any]:
    if isinstance(array, Tensor):
        array = array.detach().cpu().numpy()
    found: NDArray[Any] = array
    return found


def _closed_form(
    module: nn.Module, device: torch.device, dtype: str, precision: Precision
) -> Callable[..., Any] | None:
    """The module's own way to the gradients of its lanes, if it has one for this device."""
    kernels = getattr(module, "cuda_gradients", None)
    fits = device.type == "cuda" and dtype == "float32" and find_spec("triton") is not None
    if kernels is not None and fits:
        return partial(kernels, precision=precision)
    return getattr(module, "lane_gradients", None)


def _sparse(module: nn.Module, data: _Resident) -> Sparse | None:
    """The data as the compiled loop of softmax regression takes it, where that loop pays."""
    if not isinstance(module, Logistic):
        return None
    found = data.sparse
    return found if found is not None and found.suits(module.out_features) else None


_of_thread = local()


def _own_copy(module: nn.Module) -> nn.Module:
    """A copy for this thread: ``functional_call`` puts tensors into a module while it runs."""
    if not hasattr(_of_thread, "copies"):
        _of_thread.copies = WeakKeyDictionary()
    copies: WeakKeyDictionary[nn.Module, nn.Module] = _of_thread.copies
    if module not in copies:
        copies[module] = deepcopy(module)
    return copies[module]


def _has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())


def _no_lanes(module: nn.Module, said: str) -> ConfigError:
    """What keeps lanes of a module from being computed as one, and what to do about it."""
    name = type(module).__name__
    if "random operation" in said:
        return ConfigError(
            f"{name} draws random numbers from a global generator, so that a visit could not be "
            "repeated: let it draw none while it is trained."
        )
    return ConfigError(
        f"{name} cannot be computed for several visits at once: the values of a tensor decide what "
        "it does (an if, .item(), a boolean mask). Compute one visit at a time with "
        "backend=Loop(), or let torch.where decide."
    )


def _device(name: str) -> torch.device:
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(f"There is no device {name!r}; there are cpu and cuda.")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"Device {name!r} was asked for, but torch sees no GPU: use cpu.")
    return torch.device(name)


def _check_dealt(samples: Integers, dealt: Integers, known: int) -> None:
    """Every worker must hold samples, and such as there are."""
    if not samples.all():
        raise ConfigError(
            f"Worker {samples.argmin()} holds no sample: deal it one, or leave it out."
        )
    if dealt.min() < 0 or dealt.max() >= known:
        raise ConfigError(
            f"Workers are dealt the samples {dealt.min()} to {dealt.max()}, but the training "
            f"samples are numbered 0 to {known - 1}."
        )


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
