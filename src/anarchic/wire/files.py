"""Models, states and other records as files, and as the bytes of such files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from anarchic.core.files import write_file
from anarchic.core.saving import Arrays, Numbers
from anarchic.core.types import Layout, Vector
from anarchic.errors import RunError
from anarchic.wire.messages import EXTRA
from anarchic.wire.strict import floats

_NUMBERS = "numbers"  # the metadata entry that holds a state's numbers, as JSON


def save_model(path: Path, layout: Layout, params: Vector, **metadata: str) -> None:
    """Write a model that any safetensors reader opens, tensors under their own names."""
    # safetensors writes whatever lies behind a tensor's first byte, in one piece or not.
    write_file(path, save(layout.split(np.ascontiguousarray(params)), metadata=metadata))


def load_model(path: Path) -> tuple[Layout, Vector, dict[str, str]]:
    """A model's layout, its vector and its metadata, from any safetensors file of floats."""
    try:
        data = path.read_bytes()  # once: the file may be replaced at any moment
        found = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    # Of a snapshot that was pulled, without the vectors that travel beside the model.
    entries = {name: entry for name, entry in found.items() if not name.startswith(EXTRA)}
    layout = Layout.of({name: (e["shape"], e["dtype"]) for name, e in entries.items()})
    tensors = {
        name: floats(entry["data"], entry["dtype"]).reshape(entry["shape"])
        for name, entry in entries.items()
    }
    return layout, layout.join(tensors), _metadata(data)


def write(
    path: Path, arrays: Mapping[str, NDArray[Any]], numbers: Numbers, *, private: bool = False
) -> None:
    """Arrays and JSON-able numbers in one file, which appears whole or not at all."""
    write_file(path, encode_state(arrays, numbers), private=private)


def read(path: Path) -> tuple[Arrays, Numbers]:
    """What ``write`` wrote."""
    try:
        opened = safe_open(path, framework="numpy")
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    with opened as file:
        numbers = (file.metadata() or {}).get(_NUMBERS)
        if numbers is None:
            raise RunError(f"{path} is a safetensors file, but not one that anarchic wrote.")
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(numbers)  # noqa: SIM118


def encode_state(arrays: Mapping[str, NDArray[Any]], numbers: Numbers) -> bytes:
    """What ``write`` puts into a file."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(contiguous, metadata={_NUMBERS: json.dumps(numbers)})


def decode_state(data: bytes) -> tuple[Arrays, Numbers]:
    """What ``encode_state`` was given."""
    try:
        arrays = load(data)
    except SafetensorError as error:
        raise RunError(
            f"{len(data)} bytes of a saved state cannot be read ({error}): they were damaged."
        ) from error
    numbers = _metadata(data).get(_NUMBERS)
    if numbers is None:
        raise RunError("These bytes are a safetensors file, but not one that anarchic wrote.")
    return arrays, json.loads(numbers)


def _unreadable(path: Path, error: Exception) -> RunError:
    return RunError(
        f"{path} cannot be read as a safetensors file ({error}): it is missing, cut short or of "
        "another kind."
    )


def _metadata(data: bytes) -> dict[str, str]:
    """The metadata in a file's header, which follows its own length."""
    length = int.from_bytes(data[:8], "little")
    metadata: dict[str, str] = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    return metadata
