"""Models by name. A name is all that is loaded until one is made: torch is heavy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from math import prod
from typing import TYPE_CHECKING, Any

from anarchic.core import registry
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


def make(name: str, data: Dataset, *, seed: int = 0) -> nn.Module:
    """A fresh model of that name for that data, the same for the same seed.

    A model from elsewhere, by name or ``module:name``, is called with the data if it needs an
    argument, otherwise without.
    """
    check(name, data)
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Model {name!r} needs PyTorch: pip install 'anarchic[torch]'."
        ) from error
    model = registry.find("models", name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: nn.Module = model(*_arguments(name, model, data))
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(
            f"Model {name!r} gave a {type(module).__name__} when it was called: let it return a "
            "torch.nn.Module."
        )
    return module


def _arguments(name: str, model: Callable[..., Any], data: Dataset) -> tuple[Any, ...]:
    """Sizes for a model of this package; for others the data set if they need an argument."""
    if name in registry.KINDS["models"].built_in:
        return _sizes(name, data)
    takes = signature(model)
    for given in ((), (data,)):
        with suppress(TypeError):
            takes.bind(*given)
            return given
    raise ConfigError(
        f"Model {name!r} takes {takes}, and is called with the data set or without arguments: name "
        "a function that makes it so."
    )


def _sizes(name: str, data: Dataset) -> tuple[Any, ...]:
    """What a model of this package is made from."""
    shape, classes = data.x_train.shape[1:], data.need_classes(f"Model {name!r}")
    flat = prod(shape), classes
    sizes: dict[str, tuple[int, ...]] = {"cnn": (*shape[:2], classes), "lstm": (classes,)}
    return sizes.get(name, flat)


def check(name: str, data: Dataset) -> None:
    """Refuse a model that does not exist, or that does not go with the data."""
    registry.check_name("models", name)
    if name not in registry.KINDS["models"].built_in:
        return
    data.need_classes(f"Model {name!r}")
    if data.y_train.ndim > 1:
        raise ConfigError(
            f"Model {name!r} predicts one label per sample, {data.name} has sequences of them: use "
            "TorchTask with a module of your own."
        )
    shape, tokens = data.x_train.shape[1:], data.x_train.dtype.kind in "ui"
    if tokens != (name == "lstm"):
        kind = "sequences of tokens" if tokens else "arrays of numbers"
        raise ConfigError(
            f"Model {name!r} does not go with {data.name}, whose inputs are {kind}: "
            f"use {'lstm' if tokens else 'logistic, mlp or cnn'}."
        )
    if name == "cnn" and (len(shape) != 3 or shape[1] != shape[2]):
        raise ConfigError(f"cnn needs square images, {data.name} has inputs of shape {shape}.")
