"""A rule's state as the store keeps it, and back.

A publication holds the model, so parameters are not written again; nor are arrays of zeros, which
is what a buffer is right after a step; nor are rows that did not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anarchic import wire
from anarchic.core.rule import Rule
from anarchic.core.saving import pack, unpack
from anarchic.core.types import Snapshot
from anarchic.errors import AnarchicError, StoreCorrupt


def encode_state(rule: Rule[Any], state: Any) -> bytes:
    """What is not in the model, nor zero, nor a row."""
    parts = rule.rows(state)
    arrays, numbers = pack(state, apart=list(parts.values()))
    for name, rows in parts.items():
        numbers |= {f"{name}.workers": len(rows), f"{name}.place": rows.place}
    same = [name for name, array in arrays.items() if array is state.params]
    zero = [name for name, array in arrays.items() if name not in same and not array.any()]
    kept = {name: array for name, array in arrays.items() if name not in (*same, *zero)}
    return wire.encode_state(kept, {"numbers": numbers, "params": same, "zero": zero})


def decode_state(
    rule: Rule[Any], snapshot: Snapshot, state: bytes, rows: Mapping[str, bytes]
) -> Any:
    """The state that ``encode_state`` was given, at the version of ``snapshot``."""
    try:
        arrays, record = wire.decode_state(state)
        numbers = record["numbers"]
        template = rule.init(snapshot.params)
        parts = list(rule.rows(template).values())
        blank, _ = pack(template, apart=parts)
        arrays |= dict.fromkeys(record["params"], snapshot.params)
        arrays |= {name: np.zeros_like(blank[name]) for name in record["zero"]}
        found = unpack(template, arrays, numbers, apart=parts)
        _restore_rows(rule, found, numbers, rows)
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


def _restore_rows(
    rule: Rule[Any], state: Any, numbers: Mapping[str, Any], stored: Mapping[str, bytes]
) -> None:
    parts = rule.rows(state)
    for name, rows in parts.items():
        start = _key(parts, name, "")
        own = {key[len(start) :]: row for key, row in stored.items() if key.startswith(start)}
        if len(own) != numbers[f"{name}.workers"]:
            raise StoreCorrupt(
                f"The state counts on {numbers[f'{name}.workers']} rows of {name}, and the store "
                f"has {len(own)}"
            )
        rows.restore(own, numbers[f"{name}.place"])


def changed_rows(rule: Rule[Any], state: Any) -> tuple[dict[str, bytes], list[str]]:
    """The rows that the store has not seen, and those that it should drop, by their keys there."""
    parts = rule.rows(state)
    changed: dict[str, bytes] = {}
    removed: list[str] = []
    for name, rows in parts.items():
        put, gone = rows.changes()
        changed |= {_key(parts, name, worker): row for worker, row in put.items()}
        removed += [_key(parts, name, worker) for worker in gone]
    return changed, removed


def mark_stored(rule: Rule[Any], state: Any) -> None:
    """The store holds what ``changed_rows`` named."""
    for rows in rule.rows(state).values():
        rows.mark_stored()


def _key(parts: Mapping[str, Any], name: str, worker: str) -> str:
    """Of a row in the store: the worker, after the name of the part where there are several."""
    return worker if len(parts) == 1 else f"{name}:{worker}"
