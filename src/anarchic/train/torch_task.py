"""Any ``torch.nn.Module`` with a loss, on anybody's data, as a task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from anarchic.core.types import Integers, Layout, Vector
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.train.draws import Draws
from anarchic.train.images import crop_and_flip, padded, pick_crops
from anarchic.train.task import Array, Picks

Loss = Callable[[Tensor, Tensor], Tensor]

EVALUATION_BATCH = 2_000
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
    arrays, whose small products are several times as fast as torch's.
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
    ) -> None:
        _check_module(module)
        self.device, self.dtype = _device(device), getattr(torch, dtype)
        self.module = module.to(self.device, self.dtype)
        self.loss = loss
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        name = {"float32": "F32", "float64": "F64"}[dtype]
        self.layout = Layout.of({n: (tuple(p.shape), name) for n, p in trained.items()})
        self._closed_form = getattr(module, "lane_gradients", None)
        self._crops = data.augment == "crop-flip" if augment is None else augment
        on_cpu = self.device.type == "cpu" and not self._crops
        self._uses_numpy = self._closed_form is not None and on_cpu

        self.samples: Integers = np.array([len(part) for part in parts], np.int64)
        self._first = np.cumsum([0, *self.samples[:-1]])
        # Every worker's samples side by side: a batch is one gather, near in memory.
        dealt = np.concatenate([np.asarray(part) for part in parts])
        self._x: Any = self._inputs(data.x_train[dealt])
        self._y: Any = self._labels(data.y_train[dealt])
        if self._crops:
            self._x = padded(self._x)
        if self._uses_numpy:
            self._x, self._y = self._x.numpy(), self._y.numpy()
        self._x_test, self._y_test = self._inputs(data.x_test), self._labels(data.y_test)

    def digest(self) -> str:
        """Of all labels and about a thousand inputs, in the order in which they are dealt."""
        some = self._x[:: max(1, len(self._x) // 1000)]
        parts = hashlib.sha256(f"{self.samples.tolist()} {self._crops} {self.device.type}".encode())
        for array in (self._y, some):
            parts.update(np.ascontiguousarray(self.get(array)).data)
        return parts.hexdigest()

    def init(self) -> Vector:
        trained = dict(self.module.named_parameters())
        return self.layout.join({n: _numpy(trained[n]) for n in self.layout.names})

    def put(self, array: NDArray[Any]) -> Array:
        if self._uses_numpy:
            return array.copy()
        return torch.tensor(array, device=self.device)

    def get(self, array: Array) -> NDArray[Any]:
        return array if isinstance(array, np.ndarray) else _numpy(array)

    def pick(self, draws: Draws, batch: int) -> Picks:
        draws = Draws(draws.seed, draws.worker, draws.visit, draws.steps, self.put)
        lanes = (len(draws.worker), 1, 1)
        held = self.put(self.samples[draws.worker].reshape(lanes))
        first = self.put(self._first[draws.worker].reshape(lanes))
        picks = {"sample": first + draws.below(held, "samples", batch)}
        if self._crops:
            picks["crop"] = pick_crops(torch.as_tensor(draws.bits("augment", 3 * batch)))
        return picks

    def gradient(self, params: Array, worker: int, picks: Picks) -> Array:
        x, y = self._batch({name: pick[None] for name, pick in picks.items()})
        leaves = {
            name: tensor.clone().requires_grad_()
            for name, tensor in self._split(torch.as_tensor(params)).items()
        }
        loss = self._loss_of(leaves, torch.as_tensor(x[0]), torch.as_tensor(y[0]))
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        return flat.numpy() if self._uses_numpy else flat

    def lane_gradients(self, params: Array, workers: Integers, picks: Picks) -> Array:
        x, y = self._batch(picks)
        if self._closed_form is not None:
            return self._closed_form(params, x, y)
        gradients = vmap(grad(self._loss_of))(self._split(params), x, y)
        return torch.cat([gradients[name].flatten(1) for name in self.layout.names], dim=1)

    def evaluate(self, params: Vector) -> dict[str, float]:
        tensors = self._split(torch.as_tensor(params, dtype=self.dtype, device=self.device))
        right = loss = 0.0
        with torch.no_grad():
            for start in range(0, len(self._y_test), EVALUATION_BATCH):
                x = self._x_test[start : start + EVALUATION_BATCH]
                y = self._y_test[start : start + EVALUATION_BATCH]
                outputs = functional_call(self.module, tensors, (self._model_input(x),))
                loss += float(self.loss(outputs, y)) * len(y)
                right += float((outputs.argmax(-1) == y).sum())
        return {"accuracy": right / len(self._y_test), "loss": loss / len(self._y_test)}

    def _loss_of(self, tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.loss(functional_call(self.module, tensors, (self._model_input(x),)), y)

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
            x = crop_and_flip(self._x, flat, picks["crop"].reshape(-1, 3))
        else:
            x = self._x.index_select(0, flat)
        return x.view(*sample.shape, *x.shape[1:]), self._y.index_select(0, flat).view(sample.shape)

    def _model_input(self, x: Tensor) -> Tensor:
        """Tokens are kept as bytes and widened here; images are kept as they are used."""
        return x if x.is_floating_point() else x.long()

    def _inputs(self, x: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(x))
        if tensor.is_floating_point():
            tensor = tensor.to(self.dtype)
        return tensor.to(self.device)

    def _labels(self, y: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(y, dtype=np.int64)).to(self.device)


def _numpy(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


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
