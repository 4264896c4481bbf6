"""Rows as they are read from the tables: of the right kinds, and whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Select

from anarchic.errors import StoreCorrupt
from anarchic.server import sql_tables as t
from anarchic.server.store import Buffer, Folded, StoredRun

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
    return StoredRun(row.id, settings, row.version, row.epoch, row.folded)


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
