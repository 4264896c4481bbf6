"""Rows of the tables: how they are written, and whether what was read is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import isfinite
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete

from anarchic.errors import StoreCorrupt, StoreError
from anarchic.server import sql_tables as t
from anarchic.server.store import Buffer, Folded, NewUpdate, StoredRun

LONGEST_NAME = 1000  # bytes; PostgreSQL's index holds two of them
# What never changes after an update was accepted.
FIXED = [column for column in t.updates.c if column.name not in ("order", "version")]
_TRACE = [t.updates.c[column.name] for column in fields(Folded)]


def rows_of(connection: Connection, query: Select[Any]) -> Sequence[Any]:
    """All rows, having looked that each value is of its kind: SQLite would hand out any."""
    found = connection.execute(query).all()
    kinds = [
        (column.type.python_type, getattr(column, "nullable", True) or column is t.payloads.c.body)
        for column in query.selected_columns
    ]
    for row in found:
        for value, (kind, may_lack) in zip(row, kinds, strict=True):
            if not (isinstance(value, kind) or (value is None and may_lack)):
                raise StoreCorrupt(
                    f"The store holds a {type(value).__name__} where a {kind.__name__} belongs. "
                    "Check the disk and restore the store from a backup."
                )
    return found


def read_run(row: Any) -> StoredRun:  # a database row
    """The run, if its settings are those that were sealed."""
    t.unseal(f"run {row.id}", row.settings.encode(), row.seal)
    settings = read_json(row.settings, "settings of the run")
    return StoredRun(row.id, settings, row.version, row.epoch, row.folded, row.keep_payloads)


def read_body(row: Any) -> Buffer:  # a database row
    """The body of an update, if it is the one that was accepted."""
    t.unseal_update(row)
    if row.body is None or hashlib.sha256(row.body).digest() != row.digest:
        what = "missing" if row.body is None else "damaged"
        raise StoreCorrupt(
            f"The body of update {row.seq} by {row.worker} is {what}. It was not folded. "
            "Check the disk and restore the store from a backup."
        )
    body: Buffer = row.body
    return body


def read_folded(row: Any) -> Folded:  # a database row
    """A row of the trace, if nothing has changed that was fixed when it was accepted."""
    t.unseal_update(row)
    return Folded(*(getattr(row, column.name) for column in _TRACE))


def read_json(text: str, what: str) -> dict[str, Any]:
    """The values that were written as JSON."""
    try:
        values: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise StoreCorrupt(f"The stored {what} is damaged: {error}.") from error
    return values


def check_storable(new: NewUpdate, largest: int) -> None:
    """Refuse what a database cannot hold, or would change: it must not spoil a whole group."""
    numbers = (new.base_version, new.local_steps, new.samples)
    floats = (new.local_lr, new.norm, new.received_s)
    fits = (
        len(new.body) <= largest
        and all(-(2**63) <= number < 2**63 for number in numbers)
        and all(map(isfinite, floats))
        and all(len(name.encode(errors="replace")) <= LONGEST_NAME for name in (new.worker, new.id))
        and all(name.isprintable() for name in (new.worker, new.id))
    )
    if not fits:
        raise StoreError(
            f"Update {new.id[:50]!r} of worker {new.worker[:50]!r} cannot be stored: names may "
            f"have {LONGEST_NAME} printable bytes, whole numbers 63 bits, other numbers must "
            f"be finite, bodies may have {largest} bytes."
        )


def update_row(new: NewUpdate, seq: int) -> dict[str, Any]:
    """The row of an accepted update, sealed."""
    facts = {
        column.name: getattr(new, column.name)
        for column in FIXED
        if column.name not in ("seq", "seal")
    }
    facts["seq"] = seq
    facts["seal"] = t.seal_update(SimpleNamespace(**facts))
    return facts


def upsert(
    connection: Connection,
    insert: Callable[..., Any],
    table: Any,
    key: str,
    values: Sequence[Mapping[str, Any]],
) -> None:
    """Insert rows, or replace those with the same key; ``insert`` is the dialect's own."""
    if not values:
        return
    put = insert(table)
    changed = {name: put.excluded[name] for name in values[0] if name != key}
    connection.execute(put.on_conflict_do_update(index_elements=[key], set_=changed), list(values))


def delete_each(connection: Connection, column: Any, keys: Sequence[Any]) -> None:
    if keys:
        connection.execute(
            delete(column.table).where(column == bindparam("which")),
            [{"which": key} for key in keys],
        )
