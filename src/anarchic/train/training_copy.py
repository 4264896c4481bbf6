"""A module of the user's as a task holds it: copied, and in training mode."""

from __future__ import annotations

from copy import deepcopy

from torch import nn

from anarchic.errors import ConfigError
from anarchic.train.attributes import left_behind
from anarchic.train.probe import check_module


def training_copy(module: nn.Module) -> nn.Module:
    """A copy that is trained, whatever becomes of the module elsewhere.

    One in eval mode is put into training mode as a whole; of one in training mode the parts that
    are in eval mode stay so, as a frozen backbone's. A class that has a ``train`` of its own is
    asked in any case: it may keep parts in eval mode.
    """
    check_module(module)
    try:
        own = deepcopy(module, left_behind(module))
    except Exception as error:  # of any kind: the module is the user's
        raise ConfigError(
            f"{type(module).__name__} cannot be copied, which a task does so that training "
            f"elsewhere does not change it: {type(error).__name__}: {error}. Keep only parameters, "
            "buffers and plain values in it."
        ) from error
    if own.training:
        _ask_own_train(own)
    else:
        own.train()  # which need not return it, where a module has its own
    return own


def _ask_own_train(module: nn.Module) -> None:
    """Call each ``train`` that is not torch's; it reaches the parts below by itself."""
    if type(module).train is not nn.Module.train:
        module.train()
        return
    for part in module.children():
        if part.training:
            _ask_own_train(part)
