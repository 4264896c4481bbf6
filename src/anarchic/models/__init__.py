"""Models by name. A name is all that is loaded until one is made: torch is heavy."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from anarchic.core import registry
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


def make(name: str, data: Dataset, *, seed: int = 0) -> nn.Module:
    """A fresh model of that name for that data, the same for the same seed.

    A model from elsewhere, by name or ``module:name``, is called with the data.
    """
    check(name, data)
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Model {name!r} needs PyTorch: pip install 'anarchic[torch]'."
        ) from error
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape, classes = data.x_train.shape[1:], data.classes
        flat = prod(shape), classes
        sizes = {"logistic": flat, "mlp": flat, "cnn": (*shape[:2], classes), "lstm": (classes,)}
        module: nn.Module = registry.find("models", name)(*sizes.get(name, (data,)))
        return module


def check(name: str, data: Dataset) -> None:
    """Refuse a model that does not exist, or that does not go with the data."""
    registry.check_name("models", name)
    shape, tokens = data.x_train.shape[1:], data.x_train.dtype.kind in "ui"
    if tokens != (name == "lstm"):
        kind = "sequences of tokens" if tokens else "arrays of numbers"
        raise ConfigError(
            f"Model {name!r} does not go with {data.name}, whose inputs are {kind}: "
            f"use {'lstm' if tokens else 'logistic, mlp or cnn'}."
        )
    if name == "cnn" and (len(shape) != 3 or shape[1] != shape[2]):
        raise ConfigError(f"cnn needs square images, {data.name} has inputs of shape {shape}.")
