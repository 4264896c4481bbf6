"""As much of ``sqlite3`` as SQLAlchemy uses, on top of ``apsw``, whose files may be simulated.

Errors are those of ``sqlite3``, with its codes. Between statements other tasks may run, and what
the disk was slow about is waited for here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw
from greenlet import getcurrent

if TYPE_CHECKING:
    from tests.faults.disk import Disk

WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
KINDS: dict[int, type[sqlite3.Error]] = {
    apsw.SQLITE_CORRUPT: sqlite3.DatabaseError,
    apsw.SQLITE_NOTADB: sqlite3.DatabaseError,
    apsw.SQLITE_CONSTRAINT: sqlite3.IntegrityError,
    apsw.SQLITE_MISMATCH: sqlite3.IntegrityError,
    apsw.SQLITE_TOOBIG: sqlite3.DataError,
}


def translated(error: apsw.Error) -> sqlite3.Error:
    code = getattr(error, "extendedresult", 0) or apsw.SQLITE_IOERR
    found = KINDS.get(code & 0xFF, sqlite3.OperationalError)(str(error) or type(error).__name__)
    found.sqlite_errorcode = code
    found.sqlite_errorname = type(error).__name__
    return found


class Cursor:
    """One statement at a time; its rows are read at once."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.description: Sequence[Any] | None = None
        self.rowcount, self.lastrowid = -1, None
        self._rows: list[Any] = []

    def execute(self, sql: str, parameters: Any = ()) -> Cursor:
        self._run(sql, [parameters])
        return self

    def executemany(self, sql: str, parameters: Iterable[Any]) -> Cursor:
        self._run(sql, parameters)
        return self

    def _run(self, sql: str, each: Iterable[Any]) -> None:
        connection = self._connection
        disk, db = connection.disk, connection.db
        writes = sql.lstrip()[:8].upper().startswith(WRITES)
        self.description, self._rows, self.rowcount = None, [], 0 if writes else -1
        disk.before_statement()
        try:
            cursor = db.cursor()
            cursor.exec_trace = self._describe
            for parameters in each:
                self._rows += cursor.execute(sql, parameters)
                if writes:
                    self.rowcount += db.changes()
        except apsw.Error as error:
            raise translated(error) from None
        finally:
            disk.after_statement()

    def _describe(self, cursor: Any, sql: str, bindings: Any) -> bool:
        columns = cursor.get_description()
        self.description = [(name, *[None] * 6) for name, _ in columns] or None
        return True

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int = 1) -> list[Any]:
        taken, self._rows = self._rows[:size], self._rows[size:]
        return taken

    def fetchall(self) -> list[Any]:
        taken, self._rows = self._rows, []
        return taken

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def close(self) -> None:
        self._rows = []


class Connection:
    """A connection of one process."""

    def __init__(self, disk: Disk, name: str) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        if not name.startswith("file:"):
            flags |= apsw.SQLITE_OPEN_CREATE
        self.disk, self.isolation_level = disk, None
        self.owner = getattr(getcurrent(), "process", None)
        disk.before_statement()
        try:
            self.db = apsw.Connection(name, flags=flags, vfs=disk.name)
        except apsw.Error as error:
            raise translated(error) from None
        finally:
            disk.after_statement()
        disk.connections.append(self)

    @property
    def in_transaction(self) -> bool:
        return self.db.in_transaction

    def cursor(self, factory: Any = None) -> Cursor:
        return Cursor(self)

    def execute(self, sql: str, parameters: Any = ()) -> Cursor:
        return self.cursor().execute(sql, parameters)

    def create_function(self, name: str, arity: int, function: Any, deterministic: Any = 0) -> None:
        pass  # SQLAlchemy's REGEXP, which no statement of ours uses

    def commit(self) -> None:
        if self.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        if self.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        if self in self.disk.connections:
            self.disk.connections.remove(self)
        self.db.close(True)
