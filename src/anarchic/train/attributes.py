"""What a module keeps in plain attributes: numbers and tensors that are no parameters or buffers.

What a forward pass leaves there is in no vector and no checkpoint, and all lanes would share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

APART = ("_parameters", "_buffers", "_modules")  # of nn.Module, which torch looks after
DEPTH = 3  # lists within lists that are looked into


def attributes(part: nn.Module) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in vars(part).items() if key not in APART]


def kept_in(module: nn.Module) -> dict[str, Any]:
    """A copy of the numbers and tensors in attributes of the module and its parts, by name."""
    found = {
        f"{name}.{key}" if name else key: _copied(value, DEPTH)
        for name, part in module.named_modules()
        for key, value in attributes(part)
    }
    return {name: value for name, value in found.items() if value is not None}


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names of those that are not the same to the bit."""
    return [
        name
        for name in {**before, **after}
        if name not in before or name not in after or not _alike(before[name], after[name])
    ]


def _copied(value: Any, depth: int) -> Any:
    """None where it holds no number: functions, names, flags and parameters keep nothing."""
    if value is None or isinstance(value, bool | str | nn.Parameter):
        return None
    if isinstance(value, int | float | complex | np.generic):
        return value
    if isinstance(value, Tensor):
        dense = value.layout == torch.strided and value.device.type != "meta"
        return value.detach().clone() if dense and not value.is_quantized else None
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else None
    if isinstance(value, list | tuple | deque) and depth:
        return [_copied(each, depth - 1) for each in value]
    if isinstance(value, dict) and depth:
        return {key: _copied(each, depth - 1) for key, each in value.items()}
    return None


def _alike(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.shape == b.shape and same(a, b)
    if isinstance(a, np.ndarray):
        return bool(a.shape == b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, list):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    return bool(a == b or (a != a and b != b))


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape are equal, NaN to NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
