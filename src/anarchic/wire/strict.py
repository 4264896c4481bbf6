"""A safetensors file read in place, strictly, from whoever sent it.

The library copies every tensor and takes whatever JSON its parser takes. Here the header is
bounded before it is looked at, nothing in it is optional, doubled or left over, and the data stay
where they are. What the library rejects is rejected here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import prod
from reprlib import Repr
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import MalformedUpdate

WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
METADATA = "__metadata__"
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_PARTS = {"dtype", "shape", "data_offsets"}
_MOST_AXES = 32  # what every NumPy can hold
_MOST_DIGITS = 15
_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 60, 60, 20


class Tensor(NamedTuple):
    """An entry of the header; its bytes are ``start`` to ``end`` of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Contents(NamedTuple):
    """A file taken apart: its metadata, its tensors as they lie, and their bytes."""

    metadata: dict[str, str]
    tensors: list[Tensor]
    data: memoryview


def shown(value: object) -> str:
    """A stranger's value, fit for a message: printable, ASCII and short."""
    return _SHORT.repr(value).encode("ascii", "backslashreplace").decode()


def take_apart(body: bytes | bytearray | memoryview, most: int) -> Contents:
    """The parts of a file whose header is at most ``most`` bytes long."""
    view = memoryview(body).toreadonly().cast("B")
    if len(view) < 8:
        raise MalformedUpdate(
            f"The body has {len(view)} bytes, a safetensors file at least 8: send the whole file."
        )
    length = int.from_bytes(view[:8], "little")
    if length > most:
        raise MalformedUpdate(
            f"The header claims {length} bytes, at most {most} are taken for this model: begin the "
            "file with the length of its header, as 8 bytes, the lowest first."
        )
    if 8 + length > len(view):
        raise MalformedUpdate(
            f"The header claims {length} bytes, but only {len(view) - 8} follow: the file was cut "
            "short; send it again."
        )
    header = _parsed(view[8 : 8 + length])
    metadata = _metadata(header.pop(METADATA, {}))
    tensors = [_tensor(name, entry) for name, entry in header.items()]
    data = view[8 + length :]
    return Contents(metadata, _in_order(tensors, len(data)), data)


def put_together(
    tensors: Iterable[tuple[str, str, tuple[int, ...], NDArray[Any]]], metadata: dict[str, str]
) -> bytes:
    """A file of (name, dtype, shape, contiguous numbers), in the order given."""
    header: dict[str, Any] = {METADATA: metadata}  # values of two kinds
    parts: list[Any] = []  # buffers; arrays do not say so to the type checker
    end = 0
    for name, dtype, shape, numbers in tensors:
        start, end = end, end + numbers.nbytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
        parts.append(numbers.reshape(-1).view(np.uint8))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned, as the library does
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def floats(data: memoryview | bytes | bytearray, dtype: str) -> NDArray[Any]:
    """Numbers at their own width, without a copy; BF16, which NumPy lacks, as float32."""
    if not len(data):
        return np.zeros(0, _NUMPY.get(dtype, "<f4"))
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, _NUMPY[dtype])


def _parsed(header: memoryview) -> dict[str, Any]:
    try:
        text = str(header, "utf-8")
        found = _JSON.decode(text) if text.startswith("{") else None
    except RecursionError:
        raise MalformedUpdate(
            "The header is nested too deeply: it is one object, with an object for each tensor."
        ) from None
    except ValueError as error:  # of the encoding or of the grammar
        raise MalformedUpdate(
            f"The header is not JSON in UTF-8 ({shown(str(error))}): write it as safetensors does."
        ) from None
    if not isinstance(found, dict):
        raise MalformedUpdate(
            f"The header must be a JSON object and begin with '{{', found "
            f"{shown(bytes(header[:8]))}: write it as safetensors does."
        )
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _digits(text: str) -> int:
    if len(text) > _MOST_DIGITS or text[0] == "-":
        raise ValueError(f"{shown(text)} is no length, shape or offset")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{shown(text)} is not a whole number")


_JSON = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_digits, parse_float=_no_number, parse_constant=_no_number
)


def _metadata(found: object) -> dict[str, str]:
    if not isinstance(found, dict):
        raise MalformedUpdate(
            f"{METADATA} must be an object of strings, found {shown(found)}: write it as "
            "safetensors does."
        )
    for name, value in found.items():
        if not isinstance(value, str):
            raise MalformedUpdate(
                f"{shown(name)} in {METADATA} must be a string, found {shown(value)}: put the "
                "number into quotes."
            )
    return found


def _tensor(name: str, entry: object) -> Tensor:
    if not isinstance(entry, dict) or entry.keys() != _PARTS:
        raise MalformedUpdate(
            f"Tensor {shown(name)} must have dtype, shape and data_offsets and nothing else, found "
            f"{shown(entry)}: write it as safetensors does."
        )
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in WIDTHS:
        raise MalformedUpdate(
            f"Tensor {shown(name)} has dtype {shown(dtype)}, known are {', '.join(WIDTHS)}: "
            "convert it first."
        )
    if not _whole(shape) or len(shape) > _MOST_AXES:
        raise MalformedUpdate(
            f"Tensor {shown(name)} has shape {shown(shape)}: give it as a list of at most "
            f"{_MOST_AXES} whole numbers."
        )
    if not _whole(offsets) or len(offsets) != 2:
        raise MalformedUpdate(
            f"Tensor {shown(name)} has data_offsets {shown(offsets)}: give the first byte and the "
            "one behind the last, as two whole numbers."
        )
    if offsets[1] - offsets[0] != prod(shape) * WIDTHS[dtype]:
        raise MalformedUpdate(
            f"Tensor {shown(name)} of shape {shown(shape)} and dtype {dtype} cannot lie at "
            f"{shown(offsets)}: it needs {WIDTHS[dtype]} bytes for each number."
        )
    return Tensor(name, dtype, tuple(shape), offsets[0], offsets[1])


def _whole(numbers: object) -> bool:
    """A list of numbers that ``_digits`` let pass; true and false are not among them."""
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)


def _in_order(tensors: list[Tensor], length: int) -> list[Tensor]:
    """As they lie in the data, which they must cover from end to end."""
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    end = 0
    for tensor in tensors:
        if tensor.start != end:
            raise MalformedUpdate(
                f"Tensor {shown(tensor.name)} begins at byte {tensor.start} of the data, the one "
                f"before it ends at {end}: leave no gap and no overlap."
            )
        end = tensor.end
    if end != length:
        raise MalformedUpdate(
            f"The tensors take {end} bytes, but {length} follow the header: the body was cut short "
            "or has something behind it; send the file as it is."
        )
    return tensors
