"""The tensors of a PyTorch module by the names that a server knows, however it is wrapped."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DataParallel, DistributedDataParallel

from anarchic.errors import ConfigError

LOOKED_AT = 4096  # numbers of a frozen parameter
COMPILED = "_orig_mod"  # where torch.compile keeps a module, in names too


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``."""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, COMPILED, None), nn.Module):
            model = inner
        else:
            return model


def named_parameters(model: nn.Module) -> dict[str, Tensor]:
    """All of them; one that is shared by two modules (tied weights) under both names."""
    found: dict[str, Tensor] = {
        _clean(name): each for name, each in model.named_parameters(remove_duplicate=False)
    }
    for name, parameter in found.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(f"{name} has no shape yet: run one batch through the model first.")
        if type(parameter.data).__name__ == "DTensor":
            raise ConfigError(
                f"{name} is split over processes (FSDP): a visit needs whole parameters, as DDP "
                "has them."
            )
    return found


def named_buffers(model: nn.Module) -> dict[str, Tensor]:
    return {_clean(name): buffer for name, buffer in model.named_buffers(remove_duplicate=False)}


def running_statistics(model: nn.Module) -> list[str]:
    """The buffers that training is known to change: not in parts that are in eval mode."""
    return [
        _clean(f"{name}.{buffer}" if name else buffer)
        for name, part in model.named_modules()
        if isinstance(part, _NormBase) and part.track_running_stats
        if part.training or not model.training
        for buffer, _ in part.named_buffers()
    ]


def as_tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """A copy in the dtype of the model; counters are rounded."""
    tensor = torch.tensor(array)
    return (tensor if dtype.is_floating_point else tensor.round()).to(dtype)


def numbers(tensor: Tensor) -> NDArray[Any]:
    """A copy on the CPU, in a dtype that NumPy has."""
    tensor = tensor.detach().cpu()
    found: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return found.astype("float32") if found.dtype == "float16" else found.copy()


def fingerprint(tensor: Tensor) -> Tensor | None:
    """The bytes of up to ``LOOKED_AT`` numbers, evenly spread; None where they cannot be read.

    What moves a whole tensor, as an average of models does, moves some of these, and a copy of a
    large frozen model would take its memory once more.
    """
    if tensor.is_meta:
        return None
    try:
        flat = tensor.detach().reshape(-1)
        return flat[:: -(-len(flat) // LOOKED_AT) or 1].cpu().clone().view(torch.uint8)
    except (RuntimeError, TypeError):  # a quantised weight in a class that cannot be sliced
        return None


def _clean(name: str) -> str:
    return name.replace(f"{COMPILED}.", "")
