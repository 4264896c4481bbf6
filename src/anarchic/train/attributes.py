"""What a module, a loss or a function keeps where no vector has it: in attributes and closures.

What a forward pass leaves there is in no checkpoint, and all lanes would share it.
"""

from __future__ import annotations

import dis
import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anarchic.models.unregistered import APART, DEPTH, leaves

MOST = 1 << 20  # numbers of an array that are compared; of a larger one, this many spread over it
ROUNDED = 1e-4  # of a tensor on a GPU, relative to its largest number
PLAIN = (bool, str, bytes, int, float, complex, np.generic)
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator, count)
GLOBALS = (bool, int, float, np.generic, Tensor, np.ndarray, list, dict, set, *GENERATORS)


def attributes(part: nn.Module) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in vars(part).items() if key not in APART]


def kept_in(*roots: Any) -> dict[str, Any]:
    """A copy of what modules and functions keep outside of parameters and buffers, by name.

    Those are plain values, tensors, arrays and random generators: in attributes, in the variables
    and defaults of functions, and in containers and objects of the user's own there; of a loss with
    buffers also these. The first of ``roots`` is the module that is trained.
    """
    seen = {id(part) for root in roots if isinstance(root, nn.Module) for part in root.modules()}
    found: dict[str, Any] = {}
    for root in roots:
        if not isinstance(root, nn.Module):
            found |= {str(key): _copied(each, seen) for key, each in _within(root)}
            continue
        for name, part in root.named_modules():
            own = [*_of_class(type(part)), *attributes(part)]  # which hide those of its class
            own += part._buffers.items() if root is not roots[0] else ()  # not in the vector
            found |= {f"{name}.{key}" if name else key: _copied(each, seen) for key, each in own}
    return {name: value for name, value in found.items() if value is not None}


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What is not the same to the bit, by name, as it is before."""
    found: dict[str, Any] = {}
    for name in {**before, **after}:
        one, other = before.get(name), after.get(name)
        if isinstance(one, _Inside) and isinstance(other, _Inside):
            found |= {f"{name}.{key}": each for key, each in changed(one, other).items()}
        elif not _alike(one, other):
            found[name] = one
    return found


def left_behind(module: nn.Module) -> dict[int, Any]:
    """What replaces tensors in attributes that deepcopy refuses: results of a forward pass."""
    found: dict[int, Any] = {}
    for part in module.modules():
        for _, value in attributes(part):
            for each in leaves(value):
                if isinstance(each, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(
                    each
                ):
                    found[id(each)] = torch.zeros(0)  # of a vmap that has ended: nobody reads it
                elif isinstance(each, Tensor) and not each.is_leaf:
                    found[id(each)] = each.detach().clone()
    return found


def generators() -> tuple[str, str]:
    """The states of Python's and NumPy's global random numbers."""
    words = np.random.get_state()  # noqa: NPY002 - what others draw from
    return repr(random.getstate()), "".join(
        repr(np.asarray(each).tobytes()) if isinstance(each, np.ndarray) else repr(each)
        for each in words
    )


class _Inside(dict[str, Any]):
    """What a function or an object of the user's own holds."""


def _copied(value: Any, seen: set[int], depth: int = DEPTH) -> Any:
    """None where it holds no value of its own: functions, types and parameters do not."""
    if value is None or isinstance(value, nn.Parameter):
        return None
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        dense = value.layout == torch.strided and value.device.type != "meta"
        return _some(value.detach()).clone() if dense and not value.is_quantized else None
    if isinstance(value, np.ndarray):
        return _some(value).copy() if value.dtype != object else None
    if isinstance(value, GENERATORS):
        return _state(value)
    if not depth:
        return None
    if isinstance(value, set | frozenset):
        return {each for each in value if isinstance(each, PLAIN)}
    if isinstance(value, list | tuple | deque):
        return [_copied(each, seen, depth - 1) for each in value]
    if isinstance(value, dict):
        return {key: _copied(each, seen, depth - 1) for key, each in value.items()}
    if isinstance(value, CellType):  # of a function's variable
        with suppress(ValueError):  # it is empty
            return _copied(value.cell_contents, seen, depth)
        return None
    if isinstance(value, nn.Module | FunctionType) or _is_own(type(value)):
        if id(value) in seen:
            return None
        seen.add(id(value))
    found = {key: _copied(each, seen, depth - 1) for key, each in _within(value)}
    return _Inside((key, each) for key, each in found.items() if each is not None) or None


def _some(array: Any) -> Any:
    size = array.numel() if isinstance(array, Tensor) else array.size
    return array if size <= MOST else array.reshape(-1)[:: size // MOST + 1]


class GeneratorState(str):
    """That of a generator of random numbers, or of a counter."""


def _state(generator: Any) -> GeneratorState:
    if isinstance(generator, np.random.Generator):
        return GeneratorState(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return GeneratorState(generator.get_state(legacy=False))
    if isinstance(generator, torch.Generator):
        return GeneratorState(generator.get_state().tolist())
    return GeneratorState(
        generator.getstate() if isinstance(generator, random.Random) else generator
    )


def _within(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function or an object of the user's own holds; nothing of those of libraries."""
    if isinstance(value, partial):
        yield from (("args", value.args), ("keywords", value.keywords), ("function", value.func))
    elif isinstance(value, MethodType):
        yield from (("self", value.__self__), ("function", value.__func__))
    elif isinstance(value, FunctionType):
        if not _installed(value.__code__.co_filename):
            yield from _of_function(value)
    elif isinstance(value, nn.Module):  # in a container, where torch does not know of it
        for name, part in value.named_modules():
            own = {**part._buffers, **dict(attributes(part))}
            yield from ((f"{name}.{key}" if name else key, each) for key, each in own.items())
    elif not isinstance(value, type) and _is_own(type(value)):
        yield from _of_class(type(value))
        slots = (name for each in type(value).__mro__ for name in vars(each).get("__slots__", ()))
        yield from ((name, getattr(value, name, None)) for name in slots)
        yield from getattr(value, "__dict__", {}).items()


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    yield from zip(code.co_freevars, function.__closure__ or (), strict=True)
    yield "defaults", (function.__defaults__, function.__kwdefaults__)
    yield from function.__dict__.items()
    names = {each.argval for each in dis.get_instructions(code) if each.opname.endswith("_GLOBAL")}
    for name in sorted(names & function.__globals__.keys()):
        if isinstance(function.__globals__[name], GLOBALS):
            yield name, function.__globals__[name]


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """What the methods of a class of the user's own keep, and its own attributes."""
    for each in kind.__mro__:
        if _is_own(each):
            for name, value in vars(each).items():
                if not name.startswith("__") or name == "__call__":
                    yield name, value


def _is_own(kind: type) -> bool:
    """Whether a class is the user's, and of no library."""
    root = kind.__module__.partition(".")[0]
    if root == "anarchic" or root in sys.stdlib_module_names:
        return False
    return not _installed(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def _installed(path: str) -> bool:
    return "site-packages" in path or "dist-packages" in path


def _alike(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return same(a, b) or (a.is_cuda and _nearly(a, b))
    if isinstance(a, np.ndarray):
        return bool(a.shape == b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, list):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    return bool(a == b or (a != a and b != b))


def _nearly(a: Tensor, b: Tensor) -> bool:
    """On a GPU the last bits of a sum may depend on the order in which its threads end."""
    if a.shape != b.shape or not a.is_floating_point():
        return False
    return bool((a - b).abs().max() <= ROUNDED * a.abs().max())


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape are equal, NaN to NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
