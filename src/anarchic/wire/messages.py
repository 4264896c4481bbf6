"""Messages between workers and server as bytes: updates, and the snapshots that workers pull.

Both are safetensors files: the model's tensors under their own names, vectors that come with them
as ``extra:NAME``, and everything else in the metadata, as strings. A server trusts no sender.
docs/protocol.md describes the messages for authors of other workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anarchic.core.names import WORKER_NAME
from anarchic.core.reading import shown
from anarchic.core.types import EMPTY, Layout, Snapshot, Update, Vector
from anarchic.errors import ConfigError, MalformedUpdate, NotFinite, RunError
from anarchic.wire import strict, terms
from anarchic.wire.strict import WIDTHS, Buffer, Contents, Tensor, floats, parse_file

EXTRA = "extra:"  # begins the name of a vector that is not a tensor of the model
UpdateDtype = Literal["F32", "F16", "BF16"]

_Array = NDArray[Any]
_NONE: frozenset[str] = frozenset()
_DTYPES = ("F32", "F16", "BF16")
_NEEDED = frozenset({"id", "base_version", "local_steps", "local_lr"})
_OPTIONAL = frozenset({"samples", "loss", "worker", "run", "epoch"})
_KNOWN = _NEEDED | _OPTIONAL | {"format"}  # the last is PyTorch's, and ignored
_ROOM = 64 * 1024  # for the metadata in a header
_ROOM_PER_TENSOR = 200  # beside its name
_MOST_HEADER = 1 << 24  # bytes of a snapshot's header: some 100,000 tensors
_BRACKETS_IN_TEXT = 256  # as in an id, and everything else that is not a tensor


def encode_snapshot(
    layout: Layout,
    snapshot: Snapshot,
    run: str,
    *,
    loss: float | None = None,
    epoch: str | None = None,
) -> bytes:
    """A model as workers pull it, with the mean training loss that came with its updates.

    ``epoch`` tells it from a snapshot of the same version in a run that was restored since. Its
    terms go with it.
    """
    known = {"version": str(snapshot.version), "run": run} | _told_loss(loss)
    known |= terms.metadata_of(snapshot.terms)
    known |= {} if epoch is None else {"epoch": epoch}
    strict.text(known, "run", strict.ID)
    wide = snapshot.params.dtype == np.float64
    numpy_dtype, dtype = ("<f8", "F64") if wide else ("<f4", "F32")
    whole = partial(np.ascontiguousarray, dtype=numpy_dtype)
    params, extras = whole(snapshot.params), {k: whole(v) for k, v in snapshot.extras.items()}
    return encoded(layout, params, extras, known, dtype)


def decode_snapshot(data: Buffer) -> tuple[Layout, Snapshot, str]:
    """Layout, model and run id of a pulled snapshot; the vectors are copies.

    It takes no more memory than these vectors, whatever the numbers in the file are.
    """
    try:
        contents = _snapshot(data)
        version = strict.whole_number(contents.metadata, "version")
        run = strict.text(contents.metadata, "run", strict.ID)
        told = terms.terms_of(contents.metadata)
        layout, params, extras = _vectors(contents, terms.averaged(told))
    except MalformedUpdate as error:
        raise RunError(f"This is not a snapshot of a model. {error}") from error
    return layout, Snapshot(version, params, extras, layout, told), run


def snapshot_facts(data: Buffer) -> tuple[float | None, frozenset[str], str | None]:
    """Loss, names of extras and epoch of a snapshot; reads its header only."""
    contents = _snapshot(data)
    names = (tensor.name for tensor in contents.tensors)
    extras = frozenset(name.removeprefix(EXTRA) for name in names if name.startswith(EXTRA))
    return _loss(contents.metadata), extras, _told(contents.metadata, "epoch")


def _snapshot(data: Buffer) -> Contents:
    return parse_file(data, most_header=_MOST_HEADER, most_brackets=_MOST_HEADER)


def claimed_worker(data: Buffer, layout: Layout, extras: frozenset[str] = _NONE) -> str | None:
    """The sender that an update names, whatever else is wrong with it; reads its header only."""
    plan = _plan(layout, extras)
    try:
        contents = parse_file(data, most_header=plan.most_header, most_brackets=plan.most_brackets)
    except MalformedUpdate:
        return None
    found = contents.metadata.get("worker", "")
    return found if WORKER_NAME.fullmatch(found) else None


def _told_loss(loss: float | None) -> dict[str, str]:
    """A loss in the metadata, left out if it is not finite."""
    return {} if loss is None or not isfinite(loss) else {"loss": repr(float(loss))}


def _told(known: Mapping[str, str], name: str) -> str | None:
    return strict.text(known, name, strict.ID) if name in known else None


def _loss(known: Mapping[str, str]) -> float | None:
    return strict.number(known, "loss") if "loss" in known else None


def _vectors(
    contents: Contents, buffers: tuple[str, ...]
) -> tuple[Layout, Vector, dict[str, Vector]]:
    model = [tensor for tensor in contents.tensors if not tensor.name.startswith(EXTRA)]
    terms.check_names(buffers, [tensor.name for tensor in model])
    layout = Layout(  # in the order of the file, which is that of the server's vectors
        tuple(tensor.name for tensor in model),
        tuple(tensor.shape for tensor in model),
        tuple(tensor.dtype for tensor in model),
        buffers,
    )
    dtypes = {tensor.dtype for tensor in contents.tensors}
    if len(dtypes) > 1:  # F64 among narrow ones would make a vector much larger than the file
        raise MalformedUpdate(
            f"The tensors have dtype {' and '.join(sorted(dtypes))}, those of a snapshot have one: "
            "pull it again."
        )
    dtype = np.float64 if dtypes == {"F64"} else np.float32
    params: Vector = np.empty(layout.dim, dtype)
    for tensor, where in zip(model, layout.slices.values(), strict=True):
        strict.fill(params[where], contents.data[tensor.start : tensor.end], tensor.dtype)
    extras: dict[str, Vector] = {}
    for tensor in contents.tensors:
        if tensor.name.startswith(EXTRA):
            if (size := (tensor.end - tensor.start) // WIDTHS[tensor.dtype]) != layout.dim:
                raise MalformedUpdate(
                    f"{shown(tensor.name)} has {size} numbers, the model {layout.dim}: pull it "
                    "again."
                )
            vector = extras[tensor.name.removeprefix(EXTRA)] = np.empty(layout.dim, dtype)
            strict.fill(vector, contents.data[tensor.start : tensor.end], tensor.dtype)
    return layout, params, extras


@dataclass(frozen=True, slots=True)
class Decoded:
    """An update as it was received, and what the worker sent with it."""

    update: Update
    loss: float | None  # of training
    run: str | None = None  # from which it pulled its base version
    epoch: str | None = None  # in which that version was published


def encode_update(
    layout: Layout,
    update: Update,
    *,
    dtype: UpdateDtype = "F32",
    loss: float | None = None,
    worker: str | None = None,
    run: str | None = None,
    epoch: str | None = None,
) -> bytes:
    """An update as a worker pushes it. A loss that is not finite is left out.

    ``worker`` is for servers with open enrolment; others know who sends by the token. ``run`` is
    that of the snapshot: a server with another run at the same address then refuses the update.
    So is ``epoch``: if the run was restored from a backup since, the update is refused too.
    """
    known = {
        "id": update.id,
        "base_version": str(update.base_version),
        "local_steps": str(update.local_steps),
        "local_lr": repr(float(update.local_lr)),
        "samples": str(update.samples),
    }
    named = {"worker": worker, "run": run, "epoch": epoch}
    known |= _told_loss(loss) | {name: told for name, told in named.items() if told is not None}
    _facts(known, worker or "unnamed")
    extras = {name: _narrowed(name, vector, dtype) for name, vector in update.extras.items()}
    direction = _narrowed("direction", update.direction, dtype)
    return encoded(layout, direction, extras, known, dtype)


def decode_update(
    body: Buffer, layout: Layout, *, extras: frozenset[str] = _NONE, worker: str | None = None
) -> Decoded:
    """An update of a model of this layout, from untrusted bytes.

    ``worker`` is who sent it, where a token says so; otherwise the metadata must. Of ``extras``,
    those that the rule knows, any may be missing. The vectors are float32 and read-only, and lie
    in ``body`` itself where that is float32 in the layout's order. That their numbers are finite
    and sensible is left to the rule's ``check``.
    """
    plan = _plan(layout, extras)
    contents = parse_file(body, most_header=plan.most_header, most_brackets=plan.most_brackets)
    dtype = _fitting(contents.tensors, plan)
    facts = _facts(contents.metadata, worker)
    beside = {
        tensor.name.removeprefix(EXTRA): _widened(contents.data[tensor.start : tensor.end], dtype)
        for tensor in contents.tensors
        if tensor.name not in plan.starts
    }
    direction = _direction(contents, plan, dtype)
    update = Update(direction=direction, extras=beside or EMPTY, **facts)
    known = contents.metadata
    return Decoded(update, _loss(known), _told(known, "run"), _told(known, "epoch"))


def check_beginning(
    beginning: Buffer, size: int, layout: Layout, *, extras: frozenset[str] = _NONE,
    worker: str | None = None,
) -> None:  # fmt: skip
    """Refuse what cannot be an update of ``size`` bytes, as far as its beginning shows."""
    plan = _plan(layout, extras)
    length = int.from_bytes(beginning[:8], "little")
    if len(beginning) < 8 or len(beginning) < 8 + length <= 8 + plan.most_header:
        return  # the header has not come as a whole
    contents = parse_file(
        beginning, most_header=plan.most_header, most_brackets=plan.most_brackets, size=size
    )
    _fitting(contents.tensors, plan)
    _facts(contents.metadata, worker)


def most_body_bytes(layout: Layout, extras: Iterable[str] = ()) -> int:
    """The size of the largest update that ``decode_update`` takes for this model."""
    names = frozenset(extras)
    return 8 + _plan(layout, names).most_header + WIDTHS["F32"] * layout.dim * (1 + len(names))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an update of a layout must look like; computed once per layout."""

    shapes: Mapping[str, tuple[int, ...]]  # of all tensors that may come
    starts: Mapping[str, int]  # of the model's tensors in the vector
    dim: int
    most_header: int
    most_brackets: int


@lru_cache(maxsize=16)
def _plan(layout: Layout, extras: frozenset[str]) -> _Plan:
    check_names(layout)
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    shapes |= {EXTRA + name: (layout.dim,) for name in extras}
    names = sum(len(json.dumps(name)) + _ROOM_PER_TENSOR for name in shapes)
    starts = {name: where.start for name, where in layout.slices.items()}
    brackets = sum(3 + name.count("[") + name.count("{") for name in shapes)
    return _Plan(shapes, starts, layout.dim, _ROOM + names, _BRACKETS_IN_TEXT + brackets)


def _narrowed(what: str, vector: Vector, dtype: UpdateDtype) -> _Array:
    """In the bytes of ``dtype``; refused where a finite number would become infinite."""
    with np.errstate(over="ignore"):
        wide: _Array = np.ascontiguousarray(vector, dtype="<f4")
        if dtype == "F32":
            narrow = back = wide
        elif dtype == "BF16":
            narrow, back = _bfloat16(wide)
        elif dtype == "F16":
            narrow = back = wide.astype("<f2")
        else:
            raise ConfigError(f"An update is sent as {', '.join(_DTYPES)}, not as {dtype!r}.")
    if back is not vector and not np.array_equal(np.isfinite(back), np.isfinite(vector)):
        raise NotFinite(
            f"The {what} has numbers too large for {dtype}: send F32, or lower the local learning "
            "rate."
        )
    return narrow


def _bfloat16(wide: _Array) -> tuple[_Array, _Array]:
    """The upper halves, rounded to the nearest, ties to even; and their values as float32."""
    bits = wide.view("<u4")
    narrow = ((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype("<u2")
    narrow[np.isnan(wide)] = 0x7FC0
    return narrow, (narrow.astype("<u4") << 16).view("<f4")


def _fitting(tensors: list[Tensor], plan: _Plan) -> str:
    """Check names and shapes against the plan, and return the one dtype of the tensors."""
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
    if len(begins) == 1:  # in the order of the vector, without gaps
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


def _facts(known: Mapping[str, str], worker: str | None) -> dict[str, Any]:
    """The fields of an update that stand in the metadata."""
    if not _NEEDED <= known.keys() <= _KNOWN:
        missing, unknown = _NEEDED - known.keys(), known.keys() - _KNOWN
        raise MalformedUpdate(
            f"The metadata do not describe an update: missing {_some(missing)}, unknown "
            f"{_some(unknown)}. They must hold {', '.join(sorted(_NEEDED))}, and may hold "
            f"{', '.join(sorted(_OPTIONAL))}."
        )
    if "worker" in known:
        named = strict.text(known, "worker", WORKER_NAME)
        worker = named if worker is None else worker
    if worker is None:
        raise MalformedUpdate(
            "The update has no sender: put 'worker' into the metadata, or send a token."
        )
    return {
        "worker": worker,
        "id": strict.text(known, "id", strict.ID),
        "base_version": strict.whole_number(known, "base_version"),
        "local_steps": strict.whole_number(known, "local_steps"),
        "local_lr": strict.number(known, "local_lr"),
        "samples": strict.whole_number(known, "samples") if "samples" in known else 0,
    }


def encoded(
    layout: Layout, vector: _Array, extras: Mapping[str, _Array], known: dict[str, str], dtype: str
) -> bytes:
    """The model's tensors first, in the layout's order: their bytes are those of the vector."""
    check_names(layout)
    for name, found in (("vector", vector), *extras.items()):
        if found.shape != (layout.dim,):
            raise ConfigError(
                f"The {name} has shape {found.shape}, the model {layout.dim} numbers: give one for "
                "each."
            )
    tensors = layout.split(vector) | {EXTRA + name: beside for name, beside in extras.items()}
    return strict.build_file(tensors, dtype, known)


def check_names(layout: Layout) -> None:
    for name in layout.names:
        if name.startswith(EXTRA) or name == strict.METADATA:
            raise ConfigError(
                f"A tensor of the model is called {name!r}, which is reserved in messages: "
                f"rename it, and begin no name with {EXTRA!r}."
            )
