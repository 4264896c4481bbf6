"""Ways to the gradients of many lanes of a module; ``choose_engine`` takes the fastest.

A lane is a visit with parameters, a row of (lanes, dim), and a batch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import local
from typing import Any, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from anarchic.core.types import Layout
from anarchic.errors import ConfigError
from anarchic.kernels import find
from anarchic.train.attributes import left_behind
from anarchic.train.noise import Noise

Loss = Callable[[Any, Tensor], Tensor]
Forward = Callable[[nn.Module, Tensor], Any]


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood; under vmap a third of the operators of torch's own."""
    logs = torch.log_softmax(outputs, dim=-1)
    return -logs.gather(-1, labels.unsqueeze(-1)).mean()


@dataclass(frozen=True)
class Objective:
    """The loss of a module as a function of its flat parameters and a batch.

    Where the vector holds buffers, a gradient has in their places what they are after the step.
    ``key`` and ``keys`` are those of ``Noise``, where the module ``draws`` random numbers.
    """

    module: nn.Module
    loss: Loss
    layout: Layout
    forward: Forward | None = None  # how to call the module, if not by ``module(x)``
    draws: bool = False
    in_threads: bool = False  # several at a time may ask for it
    channels_last: bool = False  # of images: faster convolutions on a CPU

    @cached_property
    def _integers(self) -> dict[str, torch.dtype]:
        """The buffers that are no floats, as counters are."""
        named = dict(self.module.named_buffers())
        kinds = {name: named[name].dtype for name in self.layout.buffers}
        return {name: kind for name, kind in kinds.items() if not kind.is_floating_point}

    @cached_property
    def _constants(self) -> tuple[str, ...]:
        """The buffers that no step changes."""
        names = (name for name, _ in self.module.named_buffers())
        return tuple(name for name in names if name not in self.layout.slices)

    @cached_property
    def _frozen(self) -> dict[str, nn.Parameter]:
        """The parameters that stay in the module, shared by all of its copies."""
        named = self.module.named_parameters()
        return {name: each for name, each in named if name not in self.layout.slices}

    @cached_property
    def _recurrent(self) -> bool:
        """With RNNs of torch, whose weights cuDNN moves to a block, and which draw within it."""
        return any(isinstance(part, nn.RNNBase) for part in self.module.modules())

    def split(self, params: Tensor) -> dict[str, Tensor]:
        """(..., dim) as named tensors."""
        lead, places = params.shape[:-1], self.layout.slices.items()
        tensors = {
            name: params[..., where].reshape((*lead, *shape))
            for (name, where), shape in zip(places, self.layout.shapes, strict=True)
        }
        for name, kind in self._integers.items():
            tensors[name] = tensors[name].round().to(kind)
        return tensors

    def outputs(self, tensors: dict[str, Tensor], x: Tensor) -> Any:
        """What the module gives; buffers among the tensors are replaced by those afterwards."""
        module = self.module
        if self.in_threads:  # functional_call puts tensors into a module while it runs
            module = _own_copy(module)
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        elif not x.is_floating_point():
            x = x.long()  # tokens are kept as bytes
        for name in self.layout.buffers:
            tensors[name] = tensors[name].clone()  # the module writes to them
        # It may write to others, too, without a trace (by .data): these writes end with the call.
        kept = {name: module.get_buffer(name).clone() for name in self._constants}
        given, frozen = {**kept, **tensors}, self._frozen
        before = [parameter._version for parameter in frozen.values()]
        try:
            plain = torch.backends.cudnn.flags(enabled=False)
            with plain if x.is_cuda and self._recurrent else nullcontext():
                if self.forward is None:
                    found = functional_call(module, given, (x,))
                else:
                    found = _call(module, self.forward, given, x)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ConfigError(
                f"A BatchNorm of {type(module).__name__} cannot be trained on batches of one "
                "sample, which have no variance: use batches of at least 2 (LocalWork(batch=2), "
                "--batch 2), or nn.GroupNorm."
            ) from error
        tensors.update({name: given[name] for name in tensors})
        after = [parameter._version for parameter in frozen.values()]
        if before != after:  # it began to after the look at it
            refuse_written(
                module, [n for n, p, q in zip(frozen, before, after, strict=True) if p != q]
            )
        return found

    def value(
        self, trained: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the buffers afterwards."""
        tensors = {**trained, **buffers}
        loss = self.plain_value(tensors, x, y)
        return loss, {name: tensors[name].detach() for name in buffers}

    def plain_value(self, tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.outputs(tensors, x), y)

    def _parts(self, params: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        tensors = self.split(params)
        buffers = {name: tensors.pop(name) for name in self.layout.buffers}
        return tensors, buffers

    def gradient(self, params: Tensor, x: Tensor, y: Tensor, key: Tensor | None = None) -> Tensor:
        """(dim,) for one batch, by autograd: the plainest way."""
        tensors, buffers = self._parts(params)
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
        with drawing(key, self.module):
            loss, after = self.value(leaves, buffers, x, y)
            found = torch.autograd.grad(
                loss, list(leaves.values()), allow_unused=True, materialize_grads=True
            )
        gradients = dict(zip(leaves, found, strict=True))
        gradients |= {name: buffer.to(params.dtype) for name, buffer in after.items()}
        return torch.cat([gradients[name].reshape(-1) for name in self.layout.names])

    def one_by_one(
        self, params: Tensor, x: Tensor, y: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """(lanes, dim), one lane after another."""
        lanes = (params, x, y) if keys is None else (params, x, y, keys)
        return torch.stack([self.gradient(*lane) for lane in zip(*lanes, strict=True)])

    def all_at_once(
        self, params: Tensor, x: Tensor, y: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """(lanes, dim) for all lanes at once, by ``torch.func.vmap``."""
        tensors, buffers = self._parts(params)
        try:
            if keys is None and not buffers:  # as fast as can be
                gradients = vmap(grad(self.plain_value))(tensors, x, y)
            else:
                randomness = "error" if keys is None else "different"
                lanes = vmap(grad(self.value, has_aux=True), randomness=randomness)
                with drawing(keys, self.module):
                    gradients, after = lanes(tensors, buffers, x, y)
                gradients |= {name: buffer.to(params.dtype) for name, buffer in after.items()}
        except RuntimeError as error:
            if str(error).startswith("vmap:"):
                raise _no_lanes(self.module, str(error)) from error
            raise
        parts = [gradients[name].reshape(len(params), -1) for name in self.layout.names]
        return torch.cat(parts, dim=1)


@contextmanager
def drawing(keys: Tensor | None, module: nn.Module) -> Iterator[Noise | None]:
    """Where random operators draw by keys; without keys nothing changes."""
    if keys is None:
        yield None
        return
    with ExitStack() as stack:
        if keys.is_cuda:  # fused kernels draw within
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield stack.enter_context(Noise(keys))


class _Called(nn.Module):
    """A module that is called by a function of the user's."""

    def __init__(self, module: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.module, self._forward = module, forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self.module, x)


def _call(module: nn.Module, forward: Forward, tensors: dict[str, Tensor], x: Tensor) -> Any:
    inside = {f"module.{name}": tensor for name, tensor in tensors.items()}
    found = functional_call(_Called(module, forward), inside, (x,))
    tensors.update({name: inside[f"module.{name}"] for name in tensors})
    return found


@final
@dataclass(frozen=True)
class GradientEngine:
    """A way to gradients (lanes, dim) of parameters (lanes, dim) on batches (lanes, batch, ...)."""

    objective: Objective
    function: Callable[..., Tensor]  # of parameters, inputs, targets, and keys where it draws
    max_lanes: int | None = None  # it likes to compute at once; None: as many as there are
    threaded: bool = False  # several threads may call it at the same time

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self.threaded else 1


def choose_engine(
    objective: Objective, device: torch.device, precision: str, *, alone: bool = False
) -> GradientEngine:
    """A closed form if there is one, otherwise autograd; ``alone``: one lane after another."""
    on_cpu = device.type == "cpu"
    if (function := _closed_form(objective, device, precision)) is not None:
        # On a CPU, the arrays of more lanes would not stay in a core's own cache.
        lanes = getattr(function, "lanes", 12) if on_cpu else None
        return GradientEngine(objective, function, lanes, threaded=on_cpu)
    if on_cpu and (alone or has_convolutions(objective.module)):
        # With weights per lane, vmap makes grouped convolutions, which are slow on a CPU.
        shared = replace(objective, in_threads=True)
        return GradientEngine(shared, shared.one_by_one, 1, threaded=True)
    return GradientEngine(objective, objective.one_by_one if alone else objective.all_at_once)


class _OneLane(partial[Tensor]):
    """A form that is as fast for one lane as for many: threads share single lanes."""

    lanes = 1


def has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())


def _closed_form(
    objective: Objective, device: torch.device, precision: str
) -> Callable[..., Tensor] | None:
    """The fast form that the module names or brings, if all that it has is trained as it is."""
    module, layout = objective.module, objective.layout
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    if objective.loss is not cross_entropy or objective.forward is not None or objective.draws:
        return None
    if shapes.keys() != dict(module.named_parameters()).keys():
        return None
    name = getattr(module, "kernels", None)
    on_gpu = device.type == "cuda" and set(layout.dtypes) == {"F32"}
    if name and device.type == "cpu" and (found := find(f"{name}_cpu")):
        return _OneLane(found, shapes=shapes, precision=precision)
    found = (name and on_gpu and find(f"{name}_cuda")) or (name and find(name))
    if found:
        return partial(found, shapes=shapes, precision=precision)
    brought: Callable[..., Tensor] | None = getattr(module, "lane_gradients", None)
    return brought


_of_thread = local()


def _own_copy(module: nn.Module) -> nn.Module:
    """This thread's copy of a module."""
    if not hasattr(_of_thread, "copies"):
        _of_thread.copies = WeakKeyDictionary()
    copies: WeakKeyDictionary[nn.Module, nn.Module] = _of_thread.copies
    if module not in copies:
        copies[module] = copy_of(module)
    return copies[module]


def copy_of(module: nn.Module) -> nn.Module:
    """A module with buffers of its own and the same parameters, which nobody writes to."""
    shared: dict[int, Any] = {id(parameter): parameter for parameter in module.parameters()}
    return deepcopy(module, shared | left_behind(module))


def refuse_written(module: nn.Module, names: list[str]) -> None:
    if names:
        raise ConfigError(
            f"Parameter {names[0]!r} of {type(module).__name__} is written to in the forward "
            "pass, and the write would be lost, because only gradients change parameters: make it "
            "a buffer (register_buffer), or compute with a changed copy of it."
        )


def _no_lanes(module: nn.Module, said: str) -> ConfigError:
    """What keeps lanes of a module from being computed as one, and what to do about it."""
    name = type(module).__name__
    if "random operation" in said:
        return ConfigError(
            f"{name} draws random numbers now, though it drew none when the task was made: let it "
            "draw in every training step or in none."
        )
    return ConfigError(
        f"{name} cannot be computed for several visits at once: the values of a tensor decide what "
        "it does (an if, .item(), a boolean mask). Compute one visit at a time with "
        "backend=Loop(), or let torch.where decide."
    )
