"""A published model as workers pull it."""

from __future__ import annotations

from math import isfinite

import numpy as np

from anarchic.core.types import Layout, Snapshot, Vector
from anarchic.errors import MalformedUpdate, RunError
from anarchic.wire import metadata
from anarchic.wire.strict import Contents, floats, parse_file, shown
from anarchic.wire.vectors import EXTRA, encoded


def encode_snapshot(
    layout: Layout, snapshot: Snapshot, run: str, *, loss: float | None = None
) -> bytes:
    """A model as workers pull it; the data begin with the bytes of the vector.

    ``loss`` is the mean training loss that came with the folded updates; left out if not finite.
    """
    known = {"version": str(snapshot.version), "run": run}
    if loss is not None and isfinite(loss):
        known["loss"] = repr(float(loss))
    metadata.text(known, "run", metadata.ID)
    wide = snapshot.params.dtype == np.float64
    numpy_dtype, dtype = ("<f8", "F64") if wide else ("<f4", "F32")
    params = np.ascontiguousarray(snapshot.params, dtype=numpy_dtype)
    extras = {
        name: np.ascontiguousarray(vector, dtype=numpy_dtype)
        for name, vector in snapshot.extras.items()
    }
    return encoded(layout, params, extras, known, dtype)


def decode_snapshot(data: bytes | bytearray | memoryview) -> tuple[Layout, Snapshot, str]:
    """Layout, model and run id of a pulled snapshot; the vectors are copies.

    The layout keeps the order of the file, which is that of the server's vectors.
    """
    try:
        contents = parse_file(data, most_header=len(data), most_brackets=len(data))
        version = metadata.whole_number(contents.metadata, "version")
        run = metadata.text(contents.metadata, "run", metadata.ID)
        layout, params, extras = _vectors(contents)
    except MalformedUpdate as error:
        raise RunError(f"This is not a snapshot of a model. {error}") from error
    return layout, Snapshot(version, params, extras), run


def snapshot_facts(data: bytes | bytearray | memoryview) -> tuple[float | None, frozenset[str]]:
    """The loss that came with a snapshot, and the names of its extras; reads its header only."""
    contents = parse_file(data, most_header=len(data), most_brackets=len(data))
    loss = metadata.number(contents.metadata, "loss") if "loss" in contents.metadata else None
    names = (tensor.name for tensor in contents.tensors)
    return loss, frozenset(n.removeprefix(EXTRA) for n in names if n.startswith(EXTRA))


def _vectors(contents: Contents) -> tuple[Layout, Vector, dict[str, Vector]]:
    model = [tensor for tensor in contents.tensors if not tensor.name.startswith(EXTRA)]
    layout = Layout(
        tuple(tensor.name for tensor in model),
        tuple(tensor.shape for tensor in model),
        tuple(tensor.dtype for tensor in model),
    )
    vectors = {
        tensor.name: floats(contents.data[tensor.start : tensor.end], tensor.dtype)
        for tensor in contents.tensors
    }
    wide = "F64" in layout.dtypes
    params: Vector = np.concatenate(
        [np.zeros(0, np.float32), *(vectors.pop(name) for name in layout.names)],
        dtype=np.float64 if wide else np.float32,
    )
    for name, vector in vectors.items():
        if vector.size != layout.dim:
            raise MalformedUpdate(
                f"{shown(name)} has {vector.size} numbers, the model {layout.dim}: pull it again."
            )
    extras = {name.removeprefix(EXTRA): v.astype(params.dtype) for name, v in vectors.items()}
    return layout, params, extras
