"""Models, states and other records as files, and as the bytes of such files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from anarchic.core.files import write_file
from anarchic.core.inspection import needs_policy, running_statistics, some
from anarchic.core.reading import check_file, parse_json, read_file, reason, shown
from anarchic.core.saving import Arrays, Numbers
from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError, MalformedUpdate, RunError
from anarchic.wire import strict
from anarchic.wire.messages import EXTRA
from anarchic.wire.terms import buffers_metadata, buffers_of, check_names

MAX_FILE = 1 << 36  # bytes that are read of one file
_NUMBERS = "numbers"  # the metadata entry that holds a state's numbers, as JSON
_WHOLE = {"BOOL": "?", "U8": "u1", "I8": "i1"} | {
    f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (2, 4, 8)
}


def save_model(path: Path | str, layout: Layout, params: Vector, **metadata: str) -> None:
    """Write a model that any safetensors reader opens, tensors under their own names.

    Buffers of the layout are those that a server averages, unless ``metadata`` says otherwise.
    """
    if layout.buffers:
        metadata = buffers_metadata("average", layout.buffers) | metadata
    # safetensors writes whatever lies behind a tensor's first byte, in one piece or not.
    data = save(layout.split(np.ascontiguousarray(params)), metadata=metadata)
    write_file(Path(path), _with_sorted_metadata(data) if len(metadata) > 1 else data)


def load_model(path: Path | str) -> tuple[Layout, Vector, dict[str, str]]:
    """A model's layout, its vector and its metadata, from any safetensors file of floats.

    Tensors of other kinds have no place in a vector; ``load_tensors`` reads them too.
    It takes the memory of the file twice, or of the file and the vector if that is more.
    """
    entries, metadata = _entries(path)
    try:
        policy, names = buffers_of(metadata)
        buffers = names if policy == "average" else ()
        check_names(buffers, entries)
    except MalformedUpdate as error:
        raise RunError(f"{path} cannot be used as a model. {error}") from error
    others = {name: e["dtype"] for name, e in entries.items() if e["dtype"] not in strict.WIDTHS}
    if others:
        if stray := running_statistics(sorted(entries)):
            raise ConfigError(needs_policy(str(path), stray))
        raise ConfigError(
            f"{path} has tensors that are not floats ({some(sorted(others))}: "
            f"{', '.join(sorted({*others.values()}))}), which no step can change. Write it again "
            f"with: anarchic init --from {quote(str(path))} --out floats.safetensors."
        )
    layout = Layout.of({name: (e["shape"], e["dtype"]) for name, e in entries.items()}, buffers)
    params: Vector = np.empty(layout.dim, np.float64 if "F64" in layout.dtypes else np.float32)
    for name, where in layout.slices.items():
        strict.fill(params[where], memoryview(entries[name]["data"]), entries[name]["dtype"])
    return layout, params, metadata


def load_tensors(path: Path | str) -> tuple[dict[str, tuple[NDArray[Any], str]], dict[str, str]]:
    """Every tensor of a safetensors file with its dtype there, and the metadata.

    Floats are float32 or float64; whole numbers and truth values are float32 as well.
    """
    entries, metadata = _entries(path)
    found: dict[str, tuple[NDArray[Any], str]] = {}
    for name, entry in entries.items():
        shape, dtype = tuple(entry["shape"]), entry["dtype"]
        if dtype in _WHOLE:
            array = np.frombuffer(entry["data"], _WHOLE[dtype]).astype(np.float32)
        elif dtype in strict.WIDTHS:
            array = np.empty(prod(shape), np.float64 if dtype == "F64" else np.float32)
            strict.fill(array, memoryview(entry["data"]), dtype)
        else:
            raise ConfigError(
                f"Tensor {shown(name)} of {path} has dtype {dtype}, which cannot be read here: "
                "save it as float32."
            )
        found[name] = (array.reshape(shape), dtype)
    return found, metadata


def _entries(path: Path | str) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of a file as the library gives them, and its metadata."""
    try:
        data = read_file(path, most=MAX_FILE)  # once: the file may be replaced at any moment
        found = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError, MemoryError) as error:
        raise _unreadable(path, error) from error
    metadata = _metadata(data)
    # Of a snapshot that was pulled, without the vectors that travel beside the model.
    return {name: e for name, e in found.items() if not name.startswith(EXTRA)}, metadata


def write(
    path: Path, arrays: Mapping[str, NDArray[Any]], numbers: Numbers, *, private: bool = False
) -> None:
    """Arrays and JSON-able numbers in one file, which appears whole or not at all."""
    write_file(path, encode_state(arrays, numbers), private=private)


def read(path: Path) -> tuple[Arrays, Numbers]:
    """What ``write`` wrote."""
    try:
        check_file(path, most=MAX_FILE)  # to open a pipe would wait
        with safe_open(path, framework="numpy") as file:
            numbers = _numbers(str(path), file.metadata() or {})
            return {name: file.get_tensor(name) for name in file.keys()}, numbers  # noqa: SIM118
    except (OSError, SafetensorError, TypeError, AttributeError, MemoryError) as error:
        raise _unreadable(path, error) from error


def encode_state(arrays: Mapping[str, NDArray[Any]], numbers: Numbers) -> bytes:
    """What ``write`` puts into a file."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(contiguous, metadata={_NUMBERS: json.dumps(numbers)})


def decode_state(data: bytes) -> tuple[Arrays, Numbers]:
    """What ``encode_state`` was given."""
    try:
        arrays = load(data)
    except (SafetensorError, TypeError, KeyError) as error:  # of the header, or a dtype
        raise RunError(
            f"{len(data)} bytes of a saved state cannot be read ({reason(error)}): they were "
            "damaged."
        ) from error
    return arrays, _numbers("The saved state", _metadata(data))


def _numbers(what: str, metadata: Mapping[str, str]) -> Numbers:
    """The numbers among a file's metadata."""
    if (text := metadata.get(_NUMBERS)) is None:
        raise RunError(f"{what} is a safetensors file, but not one that anarchic wrote.")
    try:
        numbers = parse_json(text)
    except ValueError as error:
        raise RunError(f"{what} is damaged: its numbers are not JSON ({reason(error)}).") from error
    if not isinstance(numbers, dict):
        raise RunError(f"{what} is damaged: its numbers are {shown(numbers)}, not an object.")
    return numbers


def _unreadable(path: Path | str, error: Exception) -> RunError:
    return RunError(
        f"{path} cannot be read as a safetensors file ({reason(error)}): it is missing, cut short "
        "or of another kind."
    )


def _with_sorted_metadata(data: bytes) -> bytes:
    """The same file with its metadata in order: the library has them in any, so bytes would differ.

    Tensors stay where they are, and the header as long as it is.
    """
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return data[:8] + text.ljust(length) + data[8 + length :] if len(text) <= length else data


def _metadata(data: bytes) -> dict[str, str]:
    """The metadata in the header, which follows its own length; the library has checked both."""
    length = int.from_bytes(data[:8], "little")
    metadata: dict[str, str] = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
    return metadata
