"""Ways to the gradients of many lanes of a module; ``choose_engine`` takes the fastest.

A lane is a visit with parameters, a row of (lanes, dim), and a batch of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from threading import local
from typing import final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from anarchic.core.types import Layout
from anarchic.errors import ConfigError
from anarchic.kernels import find

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood; under vmap a third of the operators of torch's own."""
    logs = torch.log_softmax(outputs, dim=-1)
    return -logs.gather(-1, labels.unsqueeze(-1)).mean()


@dataclass(frozen=True)
class Objective:
    """The loss of a module as a function of its flat parameters and a batch."""

    module: nn.Module
    loss: Loss
    layout: Layout
    in_threads: bool = False  # several at a time may ask for it; images lie with channels last

    def split(self, params: Tensor) -> dict[str, Tensor]:
        """(..., dim) as named tensors."""
        lead, places = params.shape[:-1], self.layout.slices.items()
        return {
            name: params[..., where].reshape(*lead, *shape)
            for (name, where), shape in zip(places, self.layout.shapes, strict=True)
        }

    def outputs(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        module = self.module
        if self.in_threads:  # functional_call puts tensors into a module while it runs
            module = _own_copy(module)
        if self.in_threads and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)  # faster convolutions on a CPU
        elif not x.is_floating_point():
            x = x.long()  # tokens are kept as bytes
        found: Tensor = functional_call(module, tensors, (x,))
        return found

    def value(self, tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.outputs(tensors, x), y)

    def gradient(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(dim,) for one batch, by autograd: the plainest way."""
        leaves = {
            name: tensor.detach().requires_grad_() for name, tensor in self.split(params).items()
        }
        gradients = torch.autograd.grad(self.value(leaves, x, y), list(leaves.values()))
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def one_by_one(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(lanes, dim), one lane after another."""
        return torch.stack([self.gradient(*lane) for lane in zip(params, x, y, strict=True)])

    def all_at_once(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(lanes, dim) for all lanes at once, by ``torch.func.vmap``."""
        try:
            gradients = vmap(grad(self.value))(self.split(params), x, y)
        except RuntimeError as error:
            if str(error).startswith("vmap:"):
                raise _no_lanes(self.module, str(error)) from error
            raise
        return torch.cat([gradients[name].flatten(1) for name in self.layout.names], dim=1)


@final
@dataclass(frozen=True)
class GradientEngine:
    """A way to gradients (lanes, dim) of parameters (lanes, dim) on batches (lanes, batch, ...)."""

    objective: Objective
    function: Callable[[Tensor, Tensor, Tensor], Tensor]
    max_lanes: int | None = None  # it likes to compute at once; None: as many as there are
    threaded: bool = False  # several threads may call it at the same time

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self.threaded else 1


def choose_engine(objective: Objective, device: torch.device, precision: str) -> GradientEngine:
    """A closed form if there is one, otherwise autograd."""
    on_cpu, function = device.type == "cpu", None
    if objective.loss is cross_entropy:
        function = _kernel(objective, device, precision)
        function = function or getattr(objective.module, "lane_gradients", None)
    if function is not None:
        # On a CPU, the arrays of more lanes would not stay in a core's own cache.
        return GradientEngine(objective, function, 12 if on_cpu else None, threaded=on_cpu)
    if on_cpu and any(isinstance(p, nn.modules.conv._ConvNd) for p in objective.module.modules()):
        # With weights per lane, vmap makes grouped convolutions, which are slow on a CPU.
        shared = replace(objective, in_threads=True)
        return GradientEngine(shared, shared.one_by_one, 1, threaded=True)
    return GradientEngine(objective, objective.all_at_once)


def _kernel(
    objective: Objective, device: torch.device, precision: str
) -> Callable[..., Tensor] | None:
    """The fast form that the module names, if it has one for this device and all is trained."""
    name, layout = getattr(objective.module, "kernels", None), objective.layout
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    if name is None or shapes.keys() != dict(objective.module.named_parameters()).keys():
        return None
    on_gpu = device.type == "cuda" and set(layout.dtypes) == {"F32"}
    found = (find(f"{name}_cuda") if on_gpu else None) or find(name)
    return None if found is None else partial(found, shapes=shapes, precision=precision)


_of_thread = local()


def _own_copy(module: nn.Module) -> nn.Module:
    """This thread's copy of a module."""
    if not hasattr(_of_thread, "copies"):
        _of_thread.copies = WeakKeyDictionary()
    copies: WeakKeyDictionary[nn.Module, nn.Module] = _of_thread.copies
    if module not in copies:
        copies[module] = deepcopy(module)
    return copies[module]


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
