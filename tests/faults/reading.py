"""Reads the store beside its server, through no fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import apsw


@dataclass
class Rows:
    """What the store holds now, read beside the server."""

    version: int
    folded: int
    trace_from: int
    updates: dict[tuple[str, str], tuple[bytes, int | None, int | None]]
    rolled_back: set[int]  # versions that no update made but an operator

    @property
    def waiting(self) -> int:
        return sum(order is None for _, order, _ in self.updates.values())


class Reader:
    """Reads the rows of updates when they have changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._version = 0  # of the data that ``rows`` are from
        self.rows: Rows | None = None

    def read(self) -> Rows | None:
        """The store's rows; None while somebody writes."""
        try:
            if self._connection is None:
                flags = apsw.SQLITE_OPEN_READWRITE
                self._connection = apsw.Connection(str(self._path), flags=flags)
            execute = self._connection.execute
            version = execute("PRAGMA data_version").get
            if self.rows is None or version != self._version:
                run = execute("SELECT version, folded, trace_from FROM run").fetchall()[0]
                found = execute('SELECT worker, id, digest, "order", version FROM updates')
                updates = {(row[0], row[1]): row[2:] for row in found}
                query = "SELECT version + 1 FROM commands WHERE kind = 'rollback' AND version >= 0"
                self.rows = Rows(*run, updates, {row[0] for row in execute(query)})
                self._version = version
            return self.rows
        except apsw.BusyError:
            return None

    def forget(self) -> None:
        """The file may change beneath SQLite: open it anew before the next look."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self.rows = None
