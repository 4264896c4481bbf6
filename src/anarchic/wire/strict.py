"""A strict safetensors reader for bytes from untrusted senders, without copies.

The library copies every tensor and accepts any JSON that its parser accepts. Here the size of the
header is checked before it is parsed, every entry must be there once and no other, and the tensors
are views of the body. What the library rejects is rejected here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite, prod
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from anarchic.core.names import WORKER_NAME
from anarchic.core.reading import shown
from anarchic.errors import MalformedUpdate

Buffer = bytes | bytearray | memoryview
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
METADATA = "__metadata__"
PIECE = 1 << 18  # numbers that are converted at a time
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_PARTS = {"dtype", "shape", "data_offsets"}
ID = re.compile(r"[!-~]{1,128}")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,14}")
_NUMBER = re.compile(  # as in JSON, and 64 characters at most
    r"(?!.{65})-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
)
_IN_WORDS = {
    ID: "1 to 128 printable ASCII characters without spaces, found {}.",
    WORKER_NAME: "1 to 64 of the characters A-Z a-z 0-9 _ . @ -, found {}.",
    _WHOLE: "a whole number of at most 15 digits, found {}: write decimal digits and nothing else.",
    _NUMBER: "a finite number, found {}: write it as in JSON, such as 0.05 or 1e-3.",
}
_INT = frozenset({int})
_MOST_DIGITS = 15


class Tensor(NamedTuple):
    """An entry of the header; its bytes are ``start`` to ``end`` of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Contents(NamedTuple):
    """A parsed file: its metadata, its tensors in the order of their bytes, and the bytes."""

    metadata: dict[str, str]
    tensors: list[Tensor]
    data: memoryview


def parse_file(
    body: Buffer, *, most_header: int, most_brackets: int, size: int | None = None
) -> Contents:
    """Parse a file whose header has at most this many bytes and opening brackets.

    The limit on brackets is one on depth, which would otherwise overflow the parser's stack.
    ``size`` is that of the whole file, where only its beginning is here.
    """
    view = memoryview(body).toreadonly().cast("B")
    if len(view) < 8:
        raise MalformedUpdate(
            f"The body has {len(view)} bytes, a safetensors file at least 8: send the whole file."
        )
    length = int.from_bytes(view[:8], "little")
    if length > most_header:
        raise MalformedUpdate(
            f"The header claims {length} bytes, at most {most_header} are taken for this model: "
            "begin the file with the length of its header, as 8 bytes, the lowest first."
        )
    if 8 + length > len(view):
        raise MalformedUpdate(
            f"The header claims {length} bytes, but only {len(view) - 8} follow: the file was cut "
            "short; send it again."
        )
    header = _parsed(view[8 : 8 + length], most_brackets)
    metadata = _metadata(header.pop(METADATA, {}))
    tensors = [_tensor(name, entry) for name, entry in header.items()]
    follow = (len(view) if size is None else size) - 8 - length
    return Contents(metadata, _in_order(tensors, follow), view[8 + length :])


def build_file(
    tensors: Mapping[str, NDArray[Any]], dtype: str, metadata: Mapping[str, str]
) -> bytes:
    """Write a file of tensors, which are contiguous and have ``dtype``, in the order given."""
    header: dict[str, Any] = {METADATA: metadata}  # strings, or objects
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned, as the library does
    parts: Any = tensors.values()  # arrays are buffers, but do not say so to the type checker
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def floats(data: Buffer, dtype: str) -> NDArray[Any]:
    """Numbers at their own width, without a copy; BF16, which NumPy lacks, as float32."""
    if not len(data):
        return np.zeros(0, _NUMPY.get(dtype, "<f4"))
    if dtype == "BF16":  # the upper half of a float32
        bits: NDArray[Any] = np.frombuffer(data, "<u2").astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    return np.frombuffer(data, _NUMPY[dtype])


def fill(out: NDArray[Any], data: memoryview, dtype: str) -> None:
    """Write numbers into a vector; those that are converted in pieces, to need little memory."""
    width = WIDTHS[dtype]
    for start in range(0, out.size, PIECE):
        end = min(start + PIECE, out.size)
        out[start:end] = floats(data[width * start : width * end], dtype)


def _parsed(header: memoryview, most_brackets: int) -> dict[str, Any]:
    try:
        text = str(header, "utf-8")
        if text.count("[") + text.count("{") > most_brackets:
            raise RecursionError
        found = _JSON.decode(text) if text.startswith("{") else None
    except RecursionError:
        raise MalformedUpdate(
            "The header has too many brackets: it is one object, with an object for each tensor "
            "and one for the metadata."
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
        raise ValueError(f"{shown(text)} is not a length, shape or offset")
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
    width = WIDTHS.get(dtype) if isinstance(dtype, str) else None
    if width is None:
        raise MalformedUpdate(
            f"Tensor {shown(name)} has dtype {shown(dtype)}, known are {', '.join(WIDTHS)}: "
            "convert it first."
        )
    # ``_digits`` refuses other numbers, but true and false would pass as 1 and 0.
    if not isinstance(shape, list) or not _INT.issuperset(map(type, shape)) or len(shape) > 32:
        raise MalformedUpdate(
            f"Tensor {shown(name)} has shape {shown(shape)}: give it as a list of whole numbers, "
            "32 at most."
        )
    if not isinstance(offsets, list) or not _INT.issuperset(map(type, offsets)):
        offsets = []
    if len(offsets) != 2 or offsets[1] - offsets[0] != width * prod(shape):
        raise MalformedUpdate(
            f"Tensor {shown(name)} of shape {shown(shape)} and dtype {dtype} cannot lie at "
            f"{shown(entry['data_offsets'])}: give its first byte and the one after its last, "
            f"{width} bytes for each number."
        )
    return Tensor(name, dtype, tuple(shape), offsets[0], offsets[1])


def _in_order(tensors: list[Tensor], length: int) -> list[Tensor]:
    """The tensors in the order of their bytes, which must cover the data without gaps."""
    tensors.sort(key=itemgetter(3, 4))  # start, end
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
            "or has extra bytes at its end; send the file unchanged."
        )
    return tensors


def text(metadata: Mapping[str, str], name: str, pattern: re.Pattern[str]) -> str:
    found = metadata.get(name, "")
    if not pattern.fullmatch(found):
        raise _wrong(name, found, pattern)
    return found


def whole_number(metadata: Mapping[str, str], name: str) -> int:
    return int(text(metadata, name, _WHOLE))


def number(metadata: Mapping[str, str], name: str) -> float:
    value = float(found := text(metadata, name, _NUMBER))
    if not isfinite(value):
        raise _wrong(name, found, _NUMBER)
    return value


def _wrong(name: str, found: str, pattern: re.Pattern[str]) -> MalformedUpdate:
    told = _IN_WORDS[pattern].format(shown(found))
    return MalformedUpdate(f"{name!r} in the metadata must be {told}")
