"""What a function of the user's is, in words that are the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, CodeType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PLAIN = bool | int | float | complex | str | bytes | None | torch.dtype | torch.device
DEEPEST = 5  # functions may hold each other


def described(value: Any, depth: int = 0) -> str:
    """Its qualified name, and the values that it was made with as far as these can be compared.

    Equal for the same function in another process; two of the same name may be told apart or not.
    """
    if isinstance(value, PLAIN):
        return repr(value)
    if depth == DEEPEST:
        return _name(type(value))
    inner = partial(described, depth=depth + 1)
    if isinstance(value, Tensor | np.ndarray):
        return _array(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(inner, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{inner(k)}: {inner(v)}' for k, v in value.items()))}}}"
    if isinstance(value, partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, nn.Module):
        parts = [(name, _name(type(part)), _plain(part)) for name, part in value.named_modules()]
        return inner([parts, value.state_dict()])
    if isinstance(value, MethodType):
        return f"{inner(value.__self__)}.{inner(value.__func__)}"
    if isinstance(getattr(value, "__code__", None), CodeType):
        return f"{_name(value)}({', '.join(map(inner, _made_with(value)))})"
    if is_dataclass(value) and not isinstance(value, type):
        return _name(type(value)) + inner({f.name: getattr(value, f.name) for f in fields(value)})
    return _name(value if hasattr(value, "__qualname__") else type(value))


def _name(named: Any) -> str:
    return f"{getattr(named, '__module__', None)}.{named.__qualname__}"


def _array(array: Any) -> str:
    values = array
    if isinstance(array, Tensor):  # NumPy has no bfloat16
        values = (array.double() if array.is_floating_point() else array).detach().cpu().numpy()
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return f"array({array.dtype}, {tuple(array.shape)}, {digest})"


def _plain(part: nn.Module) -> dict[str, Any]:
    """The settings of a module, as its ``reduction``; not the mode that it is in."""
    own = {name: value for name, value in vars(part).items() if name[0] != "_"}
    return {n: v for n, v in own.items() if isinstance(v, PLAIN) and n != "training"}


def _made_with(function: Any) -> list[Any]:
    """Defaults and the variables from around it; of a lambda, whose name says nothing, the code."""
    found = [function.__defaults__, function.__kwdefaults__]
    found += [_contents(cell) for cell in function.__closure__ or ()]
    if function.__name__ == "<lambda>":
        code = function.__code__
        found += [code.co_names, [each for each in code.co_consts if isinstance(each, PLAIN)]]
    return found


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is still empty
        return None
