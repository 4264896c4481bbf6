"""A store that is only looked at: no file, table, lock or permission changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import cast
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.pool import NullPool

from anarchic.errors import StoreUnavailable
from anarchic.server.database import Database, database_at, path_of
from anarchic.server.migrations import check_schema
from anarchic.server.settings import HISTORY, HISTORY_BYTES
from anarchic.server.sqlite import check_identity, faults
from anarchic.server.store import Store
from anarchic.server.thinning import Versions

WAIT_S = 10.0  # for a server that is writing


@contextmanager
def looking(where: str | Path) -> Iterator[Store]:
    """The store at an address, to be read and no more; one of an earlier schema is refused."""
    path = path_of(where)
    if path is None:
        database = database_at(where, create=False, outdated=True)
    else:
        database = cast(Database, _ReadOnly(path))  # it has what reading needs
    with closing(database):
        with database.reading() as connection:
            if path is not None:
                check_identity(connection, path)
            check_schema(connection, str(path or "at this address"))
        versions = Versions(history=HISTORY, most_bytes=HISTORY_BYTES, every=None)
        yield Store(database, keep_payloads=None, versions=versions)


class _ReadOnly:
    """The file of a store, opened so that SQLite itself refuses to write."""

    shared, links, insert = False, 1, staticmethod(insert)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",  # transactions are begun and ended by hand
            hide_parameters=True,
        )

    def _connect(self) -> sqlite3.Connection:
        name = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        return sqlite3.connect(name, uri=True, timeout=WAIT_S, isolation_level=None)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with faults(self.path), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            finally:
                connection.exec_driver_sql("ROLLBACK")

    def writing(self) -> AbstractContextManager[Connection]:
        raise StoreUnavailable(f"{self.path} was opened to be looked at: nothing is written.")

    def close(self) -> None:
        self._engine.dispose()
