"""Another file in the place of a store that is open: SQLite.

After a fault the connection is closed, and the next one opens the file again by its name. SQLite's
first statement may already write: it undoes an interrupted write whose journal lies beside the
file, and changes the journal mode.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from anarchic.errors import StoreUnavailable
from anarchic.server.store import Store, open_store
from tests.server.stored import new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    with closing(open_store(path)) as store:
        store.create({}, b"model", b"state")
    return path


def end_connection(store: Store) -> None:
    """As after a fault of the disk: whoever comes next opens the file again."""
    with pytest.raises(RuntimeError), store.reading():
        raise RuntimeError


def replace(path: Path, other: Path) -> None:
    path.rename(path.with_name("away.db"))
    other.rename(path)


def append(store: Store) -> None:
    store.append([new("ann", "2")])


USES = pytest.mark.parametrize("use", [Store.run, append, Store.vacuum])


@USES
@pytest.mark.parametrize("while_it_is_opened", [False, True])
@pytest.mark.tried(
    "after a fault, while its server runs: the store replaced by a database in WAL mode",
    before="refused, but the journal mode of the other file was changed",
    now="refused, the other file stays as it is",
)
def test_a_file_in_the_place_of_the_store_is_not_prepared_for_use(
    path: Path,
    use: Callable[[Store], object],
    while_it_is_opened: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE theirs (x)")
    before, connect = other.read_bytes(), sqlite3.connect

    def connect_later(*words: Any, **settings: Any) -> sqlite3.Connection:
        monkeypatch.setattr(sqlite3, "connect", connect)
        replace(path, other)
        return connect(*words, **settings)

    with closing(open_store(path)) as store:
        end_connection(store)
        if while_it_is_opened:
            monkeypatch.setattr(sqlite3, "connect", connect_later)
        else:
            replace(path, other)
        with pytest.raises(StoreUnavailable, match="was moved or replaced while it was open"):
            use(store)
        assert path.read_bytes() == before


@USES
@pytest.mark.tried(
    "a disk that fails in the middle of a write, then a backup in the place of the store",
    before="refused, but the backup got the pages of the interrupted write",
    now="refused, the backup stays as it is",
)
def test_an_interrupted_write_is_not_undone_in_a_file_in_the_place_of_the_store(
    path: Path, use: Callable[[Store], object]
) -> None:
    journal, copy = path.with_name("run.db-journal"), path.with_name("copy.db")
    shutil.copy(path, copy)
    with closing(open_store(path)) as store:
        store.append([new("ann", "1", b"1" * 400_000)])  # so that the copy lacks pages
        with store.writing() as connection:
            connection.execute(text("PRAGMA cache_size = 1"))  # what does not fit is written now
            connection.execute(text("UPDATE state SET body = randomblob(4000000)"))
            hot = journal.read_bytes()
        assert hot[:8] != bytes(8)
        end_connection(store)
        replace(path, copy)
        journal.write_bytes(hot)
        before = path.read_bytes()
        with pytest.raises(StoreUnavailable, match="was moved or replaced while it was open"):
            use(store)
        assert path.read_bytes() == before
        assert journal.read_bytes() == hot
