"""What passes between worker and server: snapshots one way, updates the other.

Both are safetensors files: the model's tensors under their own names, vectors that travel beside
them as ``extra:NAME``, and everything else in the metadata, as strings. docs/protocol.md is the
description for those who write their own worker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import EMPTY, Layout, Snapshot, Update, Vector
from anarchic.errors import ConfigError, MalformedUpdate, NotFinite, RunError
from anarchic.wire.strict import (
    METADATA,
    WIDTHS,
    Contents,
    Tensor,
    floats,
    put_together,
    shown,
    take_apart,
)

EXTRA = "extra:"  # begins the name of a vector that is not a tensor of the model
Body = bytes | bytearray | memoryview
UpdateDtype = Literal["F32", "F16", "BF16"]

_DTYPES = ("F32", "F16", "BF16")
_ID = re.compile(r"[!-~]{1,128}")
_WORKER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,14}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # as in JSON
_MOST_NUMBER = 64  # characters
_NEEDED = frozenset({"id", "base_version", "local_steps", "local_lr"})
_KNOWN = _NEEDED | {"samples", "loss", "worker", "format"}  # the last is PyTorch's, and ignored
_ROOM = 64 * 1024  # for the metadata in a header
_ROOM_PER_TENSOR = 200  # beside its name


@dataclass(frozen=True, slots=True)
class Decoded:
    """An update as it was received, and the training loss that the worker told with it."""

    update: Update
    loss: float | None


def encode_snapshot(layout: Layout, snapshot: Snapshot, run: str) -> bytes:
    """A model as workers pull it; its data begin with the vector, byte for byte."""
    metadata = {"version": str(snapshot.version), "run": run}
    vectors = {name: _native(vector) for name, vector in snapshot.extras.items()}
    return _encoded(layout, _native(snapshot.params), vectors, metadata)


def decode_snapshot(data: Body) -> tuple[Layout, Snapshot, str]:
    """Layout, model and run id of a pulled snapshot; the vectors are the caller's own.

    The layout keeps the order of the file, which is that of the server's vectors.
    """
    try:
        contents = take_apart(data, len(data))
        version = _whole_number(contents.metadata, "version")
        run = _text(contents.metadata, "run", _ID)
        layout, params, extras = _snapshot_vectors(contents)
    except MalformedUpdate as error:
        raise RunError(f"This is not a snapshot of a model. {error}") from error
    return layout, Snapshot(version, params, extras), run


def encode_update(
    layout: Layout,
    update: Update,
    *,
    dtype: UpdateDtype = "F32",
    loss: float | None = None,
    worker: str | None = None,
) -> bytes:
    """An update as a worker pushes it. A loss that is not finite is left out.

    ``worker`` is for servers with open enrolment; others know who sends by the token.
    """
    metadata = {
        "id": update.id,
        "base_version": str(update.base_version),
        "local_steps": str(update.local_steps),
        "local_lr": repr(float(update.local_lr)),
        "samples": str(update.samples),
    }
    if loss is not None and isfinite(loss):
        metadata["loss"] = repr(float(loss))
    if worker is not None:
        metadata["worker"] = worker
    _facts(metadata, worker or "unnamed")
    extras = {name: _narrowed(name, vector, dtype) for name, vector in update.extras.items()}
    direction = _narrowed("direction", update.direction, dtype)
    return _encoded(layout, direction, extras, metadata, dtype)


def decode_update(
    body: Body,
    layout: Layout,
    *,
    extras: frozenset[str] = frozenset(),
    worker: str | None = None,
) -> Decoded:
    """An update of a model of this layout, from bytes that anybody may have sent.

    ``worker`` is who sent it, where a token says so; otherwise the metadata must. Of ``extras``,
    those that the rule knows, any may be missing. The vectors are float32 and read-only, and lie
    in ``body`` itself where that is float32 in the layout's order. That their numbers are finite
    and sensible is left to the rule's ``check``.
    """
    plan = _plan(layout, extras)
    contents = take_apart(body, plan.most_header)
    dtype = _fitting(contents.tensors, plan)
    facts = _facts(contents.metadata, worker)
    beside = {
        tensor.name.removeprefix(EXTRA): _widened(contents.data[tensor.start : tensor.end], dtype)
        for tensor in contents.tensors
        if tensor.name not in plan.starts
    }
    direction = _direction(contents, plan, dtype)
    update = Update(direction=direction, extras=beside or EMPTY, **facts)
    loss = _number(contents.metadata, "loss") if "loss" in contents.metadata else None
    return Decoded(update, loss)


def most_body_bytes(layout: Layout, extras: Iterable[str] = ()) -> int:
    """The size of the largest update that ``decode_update`` takes for this model."""
    plan = _plan(layout, frozenset(extras))
    return 8 + plan.most_header + WIDTHS["F32"] * layout.dim * (1 + len(plan.extras))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an update of a layout looks like; worked out once."""

    shapes: Mapping[str, tuple[int, ...]]  # of everything that may come
    starts: Mapping[str, int]  # of the model's tensors in the vector
    extras: frozenset[str]
    dim: int
    most_header: int


@lru_cache(maxsize=16)
def _plan(layout: Layout, extras: frozenset[str]) -> _Plan:
    _check_names(layout)
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    shapes |= {EXTRA + name: (layout.dim,) for name in extras}
    names = sum(len(json.dumps(name)) + _ROOM_PER_TENSOR for name in shapes)
    starts = {name: where.start for name, where in layout.slices.items()}
    return _Plan(shapes, starts, extras, layout.dim, _ROOM + names)


def _check_names(layout: Layout) -> None:
    for name in layout.names:
        if name.startswith(EXTRA) or name == METADATA:
            raise ConfigError(
                f"A tensor of the model is called {name!r}, which means something else in a "
                f"message: rename it, and begin no name with {EXTRA!r}."
            )


def _encoded(
    layout: Layout,
    vector: NDArray[Any],
    extras: Mapping[str, NDArray[Any]],
    metadata: dict[str, str],
    dtype: str | None = None,
) -> bytes:
    """The model's tensors first, in the layout's order: their bytes are those of the vector."""
    _check_names(layout)
    for name, beside in extras.items():
        if beside.shape != (layout.dim,):
            raise ConfigError(
                f"The extra {name!r} has shape {beside.shape}, the model {layout.dim} numbers."
            )
    kind = dtype or _kind(vector)
    tensors = [(name, kind, part.shape, part) for name, part in layout.split(vector).items()]
    tensors += [(EXTRA + n, dtype or _kind(v), v.shape, v) for n, v in extras.items()]
    return put_together(tensors, metadata)


def _kind(vector: NDArray[Any]) -> str:
    return "F64" if vector.dtype == np.float64 else "F32"


def _native(vector: Vector) -> NDArray[Any]:
    wide = vector.dtype == np.float64
    return np.ascontiguousarray(vector, dtype="<f8" if wide else "<f4")


def _narrowed(what: str, vector: Vector, dtype: UpdateDtype) -> NDArray[Any]:
    """In the bytes of ``dtype``; refused where a finite number would become infinite."""
    wide: NDArray[Any] = np.ascontiguousarray(vector, dtype="<f4")
    if dtype == "F32":
        return wide
    if dtype == "BF16":
        narrow, back = _bfloat16(wide)
    elif dtype == "F16":
        with np.errstate(over="ignore"):
            narrow = wide.astype("<f2")
        back = narrow
    else:
        raise ConfigError(f"An update is sent as {', '.join(_DTYPES)}, not as {dtype!r}.")
    if not np.array_equal(np.isfinite(back), np.isfinite(wide)):
        raise NotFinite(
            f"The {what} has numbers up to {np.abs(wide).max():g}, too large for {dtype}: send F32."
        )
    return narrow


def _bfloat16(wide: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The upper halves, rounded to the nearest, ties to even; and what they stand for."""
    bits = wide.view("<u4")
    narrow = ((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype("<u2")
    narrow[np.isnan(wide)] = 0x7FC0
    return narrow, (narrow.astype("<u4") << 16).view("<f4")


def _snapshot_vectors(contents: Contents) -> tuple[Layout, Vector, dict[str, Vector]]:
    model = [tensor for tensor in contents.tensors if not tensor.name.startswith(EXTRA)]
    layout = Layout(
        tuple(tensor.name for tensor in model),
        tuple(tensor.shape for tensor in model),
        tuple(tensor.dtype for tensor in model),
    )
    vectors: dict[str, Vector] = {}
    for tensor in contents.tensors:
        vectors[tensor.name] = floats(contents.data[tensor.start : tensor.end], tensor.dtype)
    wide = any(tensor.dtype == "F64" for tensor in model)
    params: Vector = np.concatenate(
        [np.zeros(0, np.float32), *(vectors[name] for name in layout.names)],
        dtype=np.float64 if wide else np.float32,
    )
    extras = {}
    for name, vector in vectors.items():
        if name.startswith(EXTRA):
            if vector.size != layout.dim:
                raise MalformedUpdate(f"{shown(name)} has {vector.size} numbers, the model others.")
            extras[name.removeprefix(EXTRA)] = vector.astype(params.dtype)
    return layout, params, extras


def _fitting(tensors: list[Tensor], plan: _Plan) -> str:
    """The one dtype of tensors that have the names and shapes of the plan."""
    found = {tensor.name for tensor in tensors}
    if not plan.starts.keys() <= found <= plan.shapes.keys():
        missing, unknown = plan.starts.keys() - found, found - plan.shapes.keys()
        raise MalformedUpdate(
            f"The tensors do not fit the model: missing {_some(missing)}, unknown "
            f"{_some(unknown)}. Send those of the pulled model, with the extras that go with the "
            "server's rule."
        )
    for tensor in tensors:
        if tensor.shape != plan.shapes[tensor.name]:
            raise MalformedUpdate(
                f"Tensor {shown(tensor.name)} has shape {shown(list(tensor.shape))}, the model "
                f"wants {shown(list(plan.shapes[tensor.name]))}: send those of the pulled model."
            )
    dtypes = {tensor.dtype for tensor in tensors} or {"F32"}
    if len(dtypes) > 1 or not dtypes.issubset(_DTYPES):
        raise MalformedUpdate(
            f"The tensors have dtype {' and '.join(sorted(dtypes))}: send all of them as one of "
            f"{', '.join(_DTYPES)}."
        )
    return dtypes.pop()


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(shown(name) for name in ordered[:3]) + more or "none"


def _direction(contents: Contents, plan: _Plan, dtype: str) -> Vector:
    model = [t for t in contents.tensors if t.name in plan.starts and t.end > t.start]
    width = WIDTHS[dtype]
    begins = {tensor.start - width * plan.starts[tensor.name] for tensor in model}
    if len(begins) == 1:  # they lie as in the vector
        begin = begins.pop()
        return _widened(contents.data[begin : begin + width * plan.dim], dtype)
    direction = np.empty(plan.dim, np.float32)
    for tensor in model:
        start, size = plan.starts[tensor.name], (tensor.end - tensor.start) // width
        direction[start : start + size] = floats(contents.data[tensor.start : tensor.end], dtype)
    direction.flags.writeable = False
    return direction


def _widened(data: memoryview, dtype: str) -> Vector:
    """As float32; a copy only where the bytes are narrower or do not lie on a multiple of 4."""
    found = floats(data, dtype)
    vector: Vector = found.astype(np.float32, copy=not found.flags.aligned)
    vector.flags.writeable = False
    return vector


def _facts(metadata: Mapping[str, str], worker: str | None) -> dict[str, Any]:
    """The fields of an update that stand in the metadata."""
    if not _NEEDED <= metadata.keys() <= _KNOWN:
        missing, unknown = _NEEDED - metadata.keys(), metadata.keys() - _KNOWN
        raise MalformedUpdate(
            f"The metadata do not describe an update: missing {_some(missing)}, unknown "
            f"{_some(unknown)}. They hold {', '.join(sorted(_NEEDED))} and, if you like, samples, "
            "loss and worker."
        )
    if "worker" in metadata:
        named = _text(metadata, "worker", _WORKER)
        worker = named if worker is None else worker
    if worker is None:
        raise MalformedUpdate(
            "Nobody is named as the sender: put 'worker' into the metadata, or send a token."
        )
    return {
        "worker": worker,
        "id": _text(metadata, "id", _ID),
        "base_version": _whole_number(metadata, "base_version"),
        "local_steps": _whole_number(metadata, "local_steps"),
        "local_lr": _number(metadata, "local_lr"),
        "samples": _whole_number(metadata, "samples") if "samples" in metadata else 0,
    }


def _text(metadata: Mapping[str, str], name: str, pattern: re.Pattern[str]) -> str:
    found = metadata.get(name, "")
    if not pattern.fullmatch(found):
        raise MalformedUpdate(
            f"{name!r} in the metadata must match {pattern.pattern}, found {shown(found)}."
        )
    return found


def _whole_number(metadata: Mapping[str, str], name: str) -> int:
    found = metadata.get(name, "")
    if not _WHOLE.fullmatch(found):
        raise MalformedUpdate(
            f"{name!r} in the metadata must be a whole number of at most 15 digits, found "
            f"{shown(found)}: write decimal digits and nothing else."
        )
    return int(found)


def _number(metadata: Mapping[str, str], name: str) -> float:
    found = metadata.get(name, "")
    fits = len(found) <= _MOST_NUMBER and _NUMBER.fullmatch(found)
    number = float(found) if fits else float("nan")
    if not isfinite(number):
        raise MalformedUpdate(
            f"{name!r} in the metadata must be a finite number, found {shown(found)}: write it as "
            "in JSON, such as 0.05 or 1e-3."
        )
    return number
