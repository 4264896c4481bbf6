"""States as named arrays and JSON-able numbers, and back.

A state is a dataclass of vectors, numbers, dicts of vectors, other states, and objects that know
how to ``pack`` themselves. What file they end in is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray

from anarchic.core.arrays import dtype_of, is_array, like_that, on_host
from anarchic.errors import ConfigError, RunError

Arrays = dict[str, NDArray[Any]]
Numbers = dict[str, Any]
T = TypeVar("T")


def pack(state: Any, apart: Iterable[Any] = ()) -> tuple[Arrays, Numbers]:
    """Everything in ``state``, under dotted names, but for the objects ``apart``."""
    arrays: Arrays = {}
    numbers: Numbers = {}
    for field in fields(state):
        _pack_value(field.name, getattr(state, field.name), arrays, numbers, apart)
    return arrays, numbers


def unpack(template: T, arrays: Arrays, numbers: Numbers, apart: Iterable[Any] = ()) -> T:
    """A state like ``template`` (a rule's ``init``) with the values that were packed.

    Objects of the template that are ``apart`` are taken as they are.
    """
    names = [each.name for each in fields(template)]  # type: ignore[arg-type]  # a dataclass
    kept = arrays, numbers, apart
    values = {name: _unpack_value(name, getattr(template, name), *kept) for name in names}
    return type(template)(**values)


def _pack_value(
    name: str, value: Any, arrays: Arrays, numbers: Numbers, apart: Iterable[Any]
) -> None:
    if any(value is each for each in apart):
        return
    if is_array(value):
        arrays[name] = on_host(value)
    elif isinstance(value, Mapping):
        # The order of a dict is part of the state where a rule folds over it.
        numbers[name] = list(value)
        for key, vector in value.items():
            if not is_array(vector):
                raise _cannot_save(f"{name}[{key!r}]", vector)
        arrays.update({f"{name}.{key}": on_host(vector) for key, vector in value.items()})
    elif isinstance(value, (int, float)):
        numbers[name] = value
    elif not (is_dataclass(value) or hasattr(value, "pack")):
        raise _cannot_save(name, value)
    else:
        inner = pack(value, apart) if is_dataclass(value) else value.pack()
        arrays.update({f"{name}.{key}": array for key, array in inner[0].items()})
        numbers.update({f"{name}.{key}": number for key, number in inner[1].items()})


def _cannot_save(name: str, value: Any) -> ConfigError:
    return ConfigError(
        f"The state of a rule has {name}, a {type(value).__name__}, which cannot be saved: use "
        "vectors, numbers, dicts of vectors, WorkerRows, or a dataclass of these."
    )


def _unpack_value(
    name: str, like: Any, arrays: Arrays, numbers: Numbers, apart: Iterable[Any]
) -> Any:
    if any(like is each for each in apart):
        return like
    try:
        if is_array(like):
            return like_that(_same_kind(name, arrays[name], like), like)
        if isinstance(like, Mapping):
            found = {key: arrays[f"{name}.{key}"] for key in numbers[name]}
            there = next(iter(like.values()), None)  # where such vectors lie, if not on the host
            return found if there is None else {k: like_that(v, there) for k, v in found.items()}
        if isinstance(like, (int, float)):
            return type(like)(numbers[name])
        inner = _below(name, arrays), _below(name, numbers)
        return unpack(like, *inner, apart) if is_dataclass(like) else like.unpack(*inner)
    except KeyError as missing:
        said = f"The saved state has no {missing}: it was written by another rule."
        raise RunError(said) from missing


def _same_kind(name: str, found: NDArray[Any], like: Any) -> NDArray[Any]:
    dtype = dtype_of(like)
    if found.shape != tuple(like.shape) or found.dtype != dtype:
        raise RunError(
            f"The saved {name} has shape {found.shape} and dtype {found.dtype}, this run wants "
            f"{tuple(like.shape)} and {dtype}: it belongs to another model."
        )
    return found


def _below(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{name}."
    return {key[len(start) :]: value for key, value in values.items() if key.startswith(start)}
