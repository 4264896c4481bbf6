"""Writing a group of updates to SQLite in as few steps as it takes, and what is done with it later.

The statements are text: compiling one, or finding it compiled, costs more than executing it. Each
writes all rows of a group: Python's lock is let go and taken again at every step, and where many
threads run, taking it means waiting for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from anarchic.server.records import FIXED
from anarchic.wire.strict import Buffer

_STANDING = "SELECT max(seq), (SELECT base_from FROM run) FROM updates"
_COLUMNS = [column.name for column in FIXED]
_INSERT_UPDATES = f"INSERT INTO updates ({', '.join(_COLUMNS)}) VALUES "
_ONCE = " ON CONFLICT DO NOTHING"
_FIND = "SELECT seq FROM updates WHERE seq BETWEEN ? AND ?"
_INSERT_BODIES = "INSERT INTO payloads (seq, body) VALUES "
_MARK = 'UPDATE updates SET "order" = ?, version = ? WHERE seq = ? AND "order" IS NULL'
_DELETE_BODY = "DELETE FROM payloads WHERE seq = ?"


def standing(connection: Connection) -> tuple[int, int]:
    """The highest ``seq`` so far, and ``base_from`` of the run; 0 where there is none."""
    last, base_from = connection.exec_driver_sql(_STANDING).one()
    return last or 0, base_from or 0


def insert_updates(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """See ``Database``. The rows have numbers that no update had before."""
    seqs = {row["seq"] for row in rows}
    values = tuple(row[name] for row in rows for name in _COLUMNS)
    query = _INSERT_UPDATES + _places(len(rows), len(_COLUMNS)) + _ONCE
    if connection.exec_driver_sql(query, values).rowcount == len(rows):
        return seqs
    found = connection.exec_driver_sql(_FIND, (min(seqs), max(seqs)))
    return set(found.scalars())


def insert_bodies(connection: Connection, bodies: Sequence[tuple[int, Buffer]]) -> None:
    values = tuple(value for pair in bodies for value in pair)
    connection.exec_driver_sql(_INSERT_BODIES + _places(len(bodies), 2), values)


def mark_folded(connection: Connection, places: Sequence[tuple[int, int, int]]) -> int:
    return connection.exec_driver_sql(
        _MARK, [(order, version, seq) for seq, order, version in places]
    ).rowcount


def delete_bodies(connection: Connection, seqs: Sequence[int]) -> None:
    if seqs:
        connection.exec_driver_sql(_DELETE_BODY, [(seq,) for seq in seqs])


@cache
def _places(count: int, columns: int) -> str:
    """Places for the values of some rows."""
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * count)
