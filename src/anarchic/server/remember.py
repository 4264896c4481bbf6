"""A rule's state as the store keeps it, and back.

A publication holds the model, so parameters are not written again; nor are arrays of zeros, which
is what a buffer is right after a step; nor are rows that did not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anarchic import wire
from anarchic.core.rule import Rule
from anarchic.core.rules import AfaCs
from anarchic.core.saving import pack, unpack
from anarchic.core.types import Layout, Snapshot, Vector
from anarchic.errors import AnarchicError, StoreCorrupt
from anarchic.server.memory import TrackedRows


def remember(state: Any) -> bytes:
    """What is not in the model, nor zero, nor a row."""
    arrays, numbers = pack(state)
    same = [name for name, array in arrays.items() if array is state.params]
    zero = [name for name, array in arrays.items() if name not in same and not array.any()]
    kept = {name: array for name, array in arrays.items() if name not in (*same, *zero)}
    return wire.encode_state(kept, {"numbers": numbers, "params": same, "zero": zero})


def recall(rule: Rule[Any], snapshot: Snapshot, state: bytes, rows: dict[str, bytes]) -> Any:
    """The state that ``remember`` was given, at the version of ``snapshot``."""
    try:
        arrays, record = wire.decode_state(state)
        template = rule.init(snapshot.params)
        blank, _ = pack(template)
        arrays |= dict.fromkeys(record["params"], snapshot.params)
        arrays |= {name: np.zeros_like(blank[name]) for name in record["zero"]}
        prefix = _rows_of(template)
        arrays |= {f"{prefix}{w}": np.frombuffer(row, np.uint8) for w, row in rows.items()}
        found = unpack(template, arrays, record["numbers"])
    except (AnarchicError, KeyError, ValueError) as error:
        raise StoreCorrupt(
            f"The state in the store cannot be read ({error}): restore the store from a copy."
        ) from error
    if found.version != snapshot.version:
        raise StoreCorrupt(
            f"The store has a state of version {found.version} but a model of version "
            f"{snapshot.version}: restore the store from a copy."
        )
    return found


def tracked_rows(state: Any) -> TrackedRows | None:
    """The rows inside a state, however many wrappers are around it."""
    holder = _holder(state)
    return holder if holder is None else holder.rows


def forget(state: Any, worker: str) -> bool:
    """Drop a worker's row; whether there was one."""
    holder = _holder(state)
    if holder is None or holder.rows.get(worker) is None:
        return False
    AfaCs.forget(holder, worker)
    return True


def _holder(state: Any) -> Any:  # an AfaCsState, or None
    while state is not None and not isinstance(getattr(state, "rows", None), TrackedRows):
        state = getattr(state, "inner", None)
    return state


def _rows_of(state: Any) -> str:
    """The dotted name under which rows are packed."""
    prefix = ""
    while getattr(state, "rows", None) is None and hasattr(state, "inner"):
        prefix, state = prefix + "inner.", state.inner
    return prefix + "rows."


def first_snapshot(rule: Rule[Any], params: Vector) -> tuple[Snapshot, bytes]:
    """Version 0 and its state, for a run that begins."""
    state = rule.init(params)
    return Snapshot(0, state.params, state.extras), remember(state)


def encode(layout: Layout, state: Any, run: str, loss: float | None) -> bytes:
    """The newest version as workers pull it."""
    snapshot = Snapshot(state.version, state.params, state.extras)
    return wire.encode_snapshot(layout, snapshot, run, loss=loss)
