"""Anybody's ``torch.nn.Module``, by name: its first numbers, and numbers put into it.

PyTorch is loaded when a module is: the room of models must be cheap to import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core import registry
from anarchic.core.inspection import (
    RUNNING,
    Policy,
    check_policy,
    dtype_concerns,
    needs_policy,
    some,
)
from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn

_NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
Tensors = Mapping[str, NDArray[Any]]


@final
@dataclass(frozen=True)
class Choice:
    """What of a model travels: ``train`` and ``buffer_names`` are patterns of names.

    Without ``train`` everything that requires a gradient is trained; without ``buffer_names`` the
    buffers that change are those that are named as running statistics are.
    """

    train: str | None = None
    buffers: Policy | None = None
    buffer_names: str | None = None

    def __post_init__(self) -> None:
        check_policy(self.buffers)
        for flag, text in (("--train", self.train), ("--buffer-names", self.buffer_names)):
            try:
                re.compile(text or "")
            except re.error as error:
                raise ConfigError(f"{flag} {text!r} is no regular expression: {error}.") from error

    def trains(self, name: str) -> bool:
        return self.train is None or re.search(self.train, name) is not None

    def changes(self, name: str) -> bool:
        """Whether a buffer of this name changes in training."""
        if self.buffer_names is not None:
            return re.search(self.buffer_names, name) is not None
        return RUNNING.fullmatch(name) is not None


@final
@dataclass(frozen=True, eq=False)
class FirstTensors:
    """The tensors of a model that travel, and what its user should know about the others."""

    layout: Layout
    params: Vector
    policy: str | None = None
    kept: tuple[str, ...] = ()  # buffers that change and stay with each worker
    notes: list[str] = field(default_factory=list)

    @property
    def buffers(self) -> tuple[str, tuple[str, ...]] | None:
        """The policy and the names of the buffers that it is about."""
        if self.policy is None:
            return None
        return self.policy, self.layout.buffers or self.kept


def make_module(spec: str, options: Mapping[str, Any] | None = None, *, seed: int = 0) -> nn.Module:
    """The module that ``module:Name`` names: an instance, or a class or function that makes one."""
    torch = _torch(spec)
    found = registry.load(spec)
    if isinstance(found, torch.nn.Module):
        if options:
            raise ConfigError(f"{spec} is a module already: leave its options out.")
        return found  # type: ignore[no-any-return]  # torch is Any here
    if not callable(found):
        raise ConfigError(f"{spec} is of type {type(found).__name__}, and no torch.nn.Module.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = _called(spec, found, options or {})
    if not isinstance(made, torch.nn.Module):
        raise ConfigError(
            f"{spec} gave a value of type {type(made).__name__}, and no torch.nn.Module."
        )
    return made  # type: ignore[no-any-return]


def _called(spec: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    from inspect import signature

    try:
        signature(make).bind(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{spec} cannot be called with {dict(options) or 'no arguments'} ({error}): give them "
            "with --from-option NAME=VALUE, or name a function that makes the model."
        ) from error
    try:
        return make(**options)
    except Exception as error:  # whatever code of somebody else does
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{spec} failed when it was called ({told}): mend it.") from error


def first_tensors(module: nn.Module, choice: Choice, what: str) -> FirstTensors:
    """What travels of a module: the trained parameters, and buffers where they are averaged."""
    trained, frozen = _parameters(module, choice, what)
    changing = {
        name: buffer
        for name, buffer in module.named_buffers()
        if choice.changes(name) and not _is_still(module, name)
    }
    if changing and choice.buffers in (None, "refuse"):
        raise ConfigError(needs_policy(what, list(changing), "model.safetensors"))
    averaged = changing if choice.buffers == "average" else {}
    tensors = {n: _numbers(n, t) for n, t in {**trained, **averaged}.items()}
    layout = Layout.of(
        {n: (t.shape, "F64" if t.dtype == np.float64 else "F32") for n, t in tensors.items()},
        averaged,
    )
    notes = _frozen_notes(frozen) + _half_notes(trained) + _constant_notes(module, changing)
    notes += _unregistered_notes(module)
    kept = tuple(sorted(changing)) if choice.buffers == "local" else ()
    policy = choice.buffers if changing else None
    return FirstTensors(layout, layout.join(tensors), policy, kept, notes)


def _is_still(module: nn.Module, name: str) -> bool:
    """Whether a buffer is in a part that was put into eval mode, as a frozen backbone is."""
    part = module.get_submodule(name.rpartition(".")[0])
    return module.training and not part.training


def set_tensors(module: nn.Module, tensors: Tensors, what: str) -> None:
    """Put tensors into a module under their names; counters are rounded, others stay."""
    torch = _torch(what)
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if unknown := sorted(set(tensors) - set(own)):
        raise ConfigError(
            f"{what} has no {some(unknown)}, which the model has: name the module that the model "
            "was made from."
        )
    for (
        name,
        array,
    ) in tensors.items():  # all of them first: a module that is refused stays as it is
        if tuple(own[name].shape) != array.shape:
            raise ConfigError(
                f"{what} has {name} of shape {tuple(own[name].shape)}, the model {array.shape}: "
                "name the module that the model was made from."
            )
    with torch.no_grad():
        for name, array in tensors.items():
            whole = not own[name].dtype.is_floating_point
            own[name].copy_(torch.from_numpy(np.array(np.round(array) if whole else array)))


def _torch(what: str) -> Any:  # Any: PyTorch may be missing
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ConfigError(f"{what} needs PyTorch: pip install 'anarchic[torch]'.") from error
    return torch


def _parameters(
    module: nn.Module, choice: Choice, what: str
) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """The parameters that are trained, and the others."""
    everything = dict(module.named_parameters())
    trained = {n: p for n, p in everything.items() if p.requires_grad and choice.trains(n)}
    if not trained:
        if choice.train is not None:
            raise ConfigError(
                f"No parameter of {what} that requires a gradient matches --train "
                f"{choice.train!r}; it has {some(list(everything)) or 'none'}."
            )
        raise ConfigError(f"{what} has no parameter that requires a gradient.")
    return trained, {n: p for n, p in everything.items() if n not in trained}


def _numbers(name: str, tensor: Tensor) -> NDArray[Any]:
    """The numbers of a tensor as float32, or float64."""
    from torch.nn.parameter import is_lazy

    if is_lazy(tensor) or tensor.device.type == "meta":
        raise ConfigError(
            f"{name} has no numbers yet: let a function make the model and call it once on an "
            "input, and name that function."
        )
    if tensor.is_complex():
        raise ConfigError(f"{name} is complex: train its real and imaginary parts instead.")
    wide = str(tensor.dtype) == "torch.float64"
    array: NDArray[Any] = tensor.detach().cpu().to(tensor.dtype if wide else _float32()).numpy()
    if not np.isfinite(array).all():
        raise ConfigError(f"{name} has numbers that are not finite: initialise the model anew.")
    return array


def _float32() -> Any:
    import torch

    return torch.float32


def _frozen_notes(frozen: Mapping[str, Tensor]) -> list[str]:
    if not frozen:
        return []
    size = sum(parameter.numel() for parameter in frozen.values())
    return [
        f"{len(frozen)} parameters ({size:,} numbers: {some(list(frozen))}) are frozen or not "
        "chosen and do not travel: every worker must have the same ones."
    ]


def _unregistered_notes(module: nn.Module) -> list[str]:
    from anarchic.models.unregistered import unregistered

    if not (found := unregistered(module)):
        return []
    return [
        f"Parameters in the plain attributes {some(list(found))} are unknown to torch and do not "
        "travel: put layers into an nn.ModuleList or nn.ModuleDict if they are to be trained."
    ]


def _half_notes(trained: Mapping[str, Tensor]) -> list[str]:
    dtypes = {n: _NAMES.get(str(p.dtype).removeprefix("torch."), "F32") for n, p in trained.items()}
    return dtype_concerns(Layout.of({n: ((), dtype) for n, dtype in dtypes.items()}))


def _constant_notes(module: nn.Module, changing: Mapping[str, Any]) -> list[str]:
    others = [n for n, _ in module.named_buffers() if n not in changing]
    if not others:
        return []
    return [
        f"Buffers {some(others)} stay in the module and do not travel: if training changes one of "
        "them, name it with --buffer-names."
    ]
