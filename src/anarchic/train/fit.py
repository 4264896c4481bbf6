"""Whether a module, a loss and a data set go together, found by trying two samples.

A mistake is said in one sentence before anything is trained.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anarchic.core.reading import printable
from anarchic.data.checks import IGNORED
from anarchic.errors import ConfigError
from anarchic.train.engines import Loss, cross_entropy

# What torch says of tensors of two types or places.
MIXED = re.compile("same (dtype|device)|should be the same|expected scalar type")
RAVEL = "give one label per sample, y.ravel()"


def check_fit(
    module: nn.Module,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    outputs: Callable[[Tensor], Any] | None = None,
) -> None:
    """Refuse inputs that the module does not take, and outputs that do not fit the loss.

    ``x`` and ``y`` are two samples as the module and the loss get them, with the least and the
    greatest label; ``outputs`` is how outputs are made of inputs where that is more than a call of
    the module. Nothing is changed: no parameter, no buffer, no random state.
    """
    name, seen = type(module).__name__, x if x.is_floating_point() else x.long()
    with _untouched(module, x.device):
        try:
            found = _call(module, seen) if outputs is None else outputs(seen)
        except Exception as error:  # whatever a module of somebody else raises
            raise ConfigError(
                f"{name} fails on inputs of shape {_shape(x)} and type {_kind(x)} "
                f"({_said(error)}): {_remedy(x, _said(error))}"
            ) from error
        if not isinstance(found, Tensor):
            raise ConfigError(
                f"{name} returns a {type(found).__name__}, not a tensor: give forward=..., which "
                "returns the tensor that the loss takes."
            )
        _check_targets(name, loss, found, y)
        value = _loss(name, loss, found, y)
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(
            f"The loss {_called(loss)} gives {shape}, not one number: let it return the mean over "
            "the samples (reduction='mean')."
        )
    if value.requires_grad:  # though the outputs do not
        raise ConfigError(
            f"The loss {_called(loss)} depends on parameters that are not reached through the "
            "outputs, and these would not be trained: only the module's own are, in a copy of it. "
            "Put a penalty on weights into an optimiser's weight_decay, and a loss with parameters "
            "into the module."
        )


def check_loss(loss: object) -> None:
    """Refuse what is no function of outputs and targets, such as the name of one."""
    if isinstance(loss, str):
        raise ConfigError(
            f"The loss is a text, {loss!r}: give a function, such as torch.nn.functional.{loss}."
        )
    if isinstance(loss, type):
        raise ConfigError(f"{loss.__name__} is a class: give a loss, {loss.__name__}().")
    if not callable(loss):
        raise ConfigError(
            f"The loss is a {type(loss).__name__}: give a function of outputs and targets, such as "
            "torch.nn.functional.cross_entropy."
        )


def _check_targets(name: str, loss: Loss, outputs: Tensor, y: Tensor) -> None:
    """Say what the losses themselves would not say, or not clearly."""
    told = f"{name} gives outputs of shape {_shape(outputs)} for targets of shape {_shape(y)}"
    if y.is_floating_point():
        if loss is cross_entropy:
            two = y.ndim > 1 and bool(((y == 0) | (y == 1)).all())  # several bools become floats
            kind = "bools, or floats of 0 and 1" if two else "floats"
            raise ConfigError(
                f"The targets are {kind}, but the default loss, cross_entropy, takes labels: give "
                "loss=torch.nn.functional.mse_loss, or binary_cross_entropy_with_logits for "
                "several yes-or-no labels; or give the labels as whole numbers, y.astype(int)."
            )
        if outputs.shape != y.shape and outputs.numel() == y.numel():
            as_targets, as_outputs = (-1, *y.shape[1:]), (-1, *outputs.shape[1:])
            flat = ", or end the module with nn.Flatten(0)" if y.ndim == 1 else ""
            raise ConfigError(
                f"{told}, and a loss would compare every output with every target: give "
                f"forward=lambda module, x: module(x).reshape({_listed(as_targets)}){flat}, or "
                f"reshape the targets, y.reshape({_listed(as_outputs)})."
            )
    elif loss is cross_entropy:
        if _one_column(outputs, y):
            raise ConfigError(f"{told}: {RAVEL}.")
        if outputs.ndim != y.ndim + 1 or outputs.shape[:-1] != y.shape:
            second = outputs.ndim > 2 and (*outputs.shape[:1], *outputs.shape[2:]) == y.shape
            remedy = "give loss=torch.nn.functional.cross_entropy, which takes them in the second"
            raise ConfigError(
                f"{told}: cross_entropy takes one score per class in the last dimension, "
                f"{(*y.shape[1:], 'classes')} for such targets{': ' + remedy if second else ''}."
            )
        most, least = int(y.max()), int(y.min())
        if least == IGNORED:
            raise ConfigError(
                f"The targets have labels {IGNORED}, to be ignored, which the default loss does "
                "not do: give a loss of your own that calls torch.nn.functional.cross_entropy."
            )
        if most >= outputs.shape[-1]:
            raise ConfigError(
                f"{name} scores {outputs.shape[-1]} classes, but there are labels up to {most}: "
                "give its last layer one output per class, or number the labels from 0."
            )


def _loss(name: str, loss: Loss, outputs: Tensor, y: Tensor) -> Any:
    told = (
        f"outputs of shape {_shape(outputs)} and type {_kind(outputs)} do not fit targets of shape "
        f"{_shape(y)} and type {_kind(y)}"
    )
    remedy = "change the last layer, the targets or the loss"
    if not y.is_floating_point() and outputs.shape == y.shape:
        remedy = "give the targets as floats, y.astype('float32'), where they are no class numbers"
    elif _one_column(outputs, y):
        remedy = RAVEL
    elif not y.is_floating_point() and outputs.numel() == y.numel():
        shape = _listed((-1, *outputs.shape[1:]))
        remedy = (
            f"give the targets as floats like the outputs, y.astype('float32').reshape({shape})"
        )
    try:
        with warnings.catch_warnings():
            # torch warns where it broadcasts targets against outputs, which is never meant.
            warnings.filterwarnings("error", "Using a target size")
            with torch.enable_grad():  # to see whether the loss has parameters of its own
                return loss(outputs.detach(), y)
    except Exception as error:  # whatever a loss of somebody else raises
        raise ConfigError(
            f"{_called(loss)}: the {told} of {name} ({_said(error)}): {remedy}."
        ) from error


def _one_column(outputs: Tensor, y: Tensor) -> bool:
    """Whether labels are the rows of a table with one column."""
    return not y.is_floating_point() and tuple(y.shape[1:]) == (1,) and outputs.ndim == 2


def _call(module: nn.Module, x: Tensor) -> Any:
    """The outputs, with the buffers of a module copied, should it change them."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    return functional_call(module, buffers, (x,))


@contextmanager
def _untouched(module: nn.Module, device: torch.device) -> Iterator[None]:
    """A module in eval mode, and torch's random states as they were afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    devices = [] if device.type == "cpu" else [device]
    module.eval()
    try:
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


def _remedy(x: Tensor, said: str) -> str:
    if x.is_floating_point() and MIXED.search(said):
        return (
            f"the module was converted to {_kind(x)} on {x.device.type}, without what it keeps in "
            "plain attributes and lists: make these buffers, parameters or an nn.ModuleList"
            + ("." if x.dtype == torch.float32 else ", or train in float32 (dtype='float32').")
        )
    if x.is_floating_point():
        return "change the module, or the shape of the inputs."
    return (
        "whole numbers are taken for tokens; of images or tables make floats, "
        "x.astype('float32') / 255 for pixels."
    )


def _shape(x: Tensor) -> tuple[int, ...]:
    """Of one sample."""
    return tuple(x.shape[1:])


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _kind(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _called(loss: Loss) -> str:
    return str(getattr(loss, "__name__", type(loss).__name__))


def _said(error: Exception) -> str:
    """The first line of what an error says."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return printable(text, most=200).rstrip(".")
