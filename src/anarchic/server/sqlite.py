"""SQLite: one file, one writer, and the settings that make it durable.

One connection serves the whole process, in turns. A second one for reading would gain nothing:
without a write-ahead log a reader is locked out while a commit is written anyhow, and would have
to poll for the end of it instead of waiting in the queue.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import final
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from anarchic.core.files import close_to_others, make_private, sync
from anarchic.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from anarchic.server import groups
from anarchic.server import tables as t
from anarchic.server.database import ChangeSignal
from anarchic.server.filelock import (
    NEW,
    PLAIN,
    FileLock,
    check_gone,
    check_names,
    replaced,
)
from anarchic.server.migrations import check_schema

BUSY_S = 30.0  # how long to wait for another process that writes to the file
QUIET_S = 2.0  # after a write, during which another may leave the file's time as it is
POLL_S = 0.1  # how often a waiting server looks whether another process wrote
APPLICATION = 0x616E6172  # "anar", in the header of every file of ours
_UNEXPECTED = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)

# Chosen by measurement (benchmarks/store.py, variants in turns on the same disk; updates per second
# with bodies dropped at every publication, 4 MB in groups of 8 and 40 KB in groups of 64):
#
#   pages  journal         4 MB   40 KB        on a busy disk   4 MB   40 KB
#   32 KiB PERSIST, FULL    141    5821                           66    1485
#   64 KiB PERSIST, FULL    136    3560                           90    1392
#   16 KiB PERSIST, FULL                                          59    1420
#   32 KiB WAL, FULL         80    5548
#   32 KiB DELETE, EXTRA                                          65    1207
#   32 KiB TRUNCATE, FULL                                         77    1208
#
# A write-ahead log writes every body twice. The other three differ in how a commit is made final:
# a journal that stays, and whose header is overwritten and synced, costs the file system least.
# DELETE would need EXTRA, or a power cut could bring the journal back and undo the commit.
PAGE_SIZE = 32768
SHARED_CACHE = 1 << 27  # bytes, of all runs of a server of several
PRAGMAS = (
    "journal_mode = PERSIST",
    "synchronous = FULL",
    "journal_size_limit = 67108864",  # what a large transaction left is given back
    "secure_delete = OFF",  # Debian's default zeroes freed pages, which doubles the writing
    "cache_size = -65536",  # KiB; a group of 4 MB bodies that does not fit is written early
)


@final
class Sqlite:
    """The file at ``path``, made if it is not there. See ``Database``."""

    shared = False
    largest = 999_000_000  # SQLITE_MAX_LENGTH is 10**9 for a whole row
    insert = staticmethod(insert)
    insert_updates = staticmethod(groups.insert_updates)
    insert_bodies = staticmethod(groups.insert_bodies)
    mark_folded = staticmethod(groups.mark_folded)
    delete_bodies = staticmethod(groups.delete_bodies)

    def __init__(self, path: Path, *, outdated: bool = False) -> None:
        self.path = path = Path(os.path.realpath(path))  # a symbolic link is no second name
        self._turn = _Turn()
        self.changes = ChangeSignal(self._stamp, POLL_S)
        self._connection: Connection | None = None
        self._claimed = self._leads = self._closed = False
        self.links, self._base_from = 1, 0
        self._engine = create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",  # transactions are begun and ended below, by hand
            hide_parameters=True,  # an error must not print four megabytes, or a token's hash
        )
        with faults(self.path):
            if not path.exists():
                check_gone(path)
                _make(path)
            check_kind_of_file(path)
            check_names(path)
            self._lock = FileLock(path)
        try:
            with self.reading() as connection:
                check_identity(connection, path)
                if not outdated:
                    check_schema(connection, str(path))
            self._close_to_others()
        except BaseException:
            self.close()
            raise

    def _close_to_others(self) -> None:
        """What an earlier version made, or somebody copied. Not a file that is no store."""
        with faults(self.path):
            for suffix in ("", "-journal", ".lock"):
                close_to_others(self.path.with_name(self.path.name + suffix))

    def reading(self) -> AbstractContextManager[Connection]:
        return self._transaction("BEGIN")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
        self.changes.notify()

    def _check_file(self) -> None:
        """What is written must be found at the path; what is read must come from there."""
        found = os.stat(self.path)
        self.links = found.st_nlink
        if (found.st_dev, found.st_ino) != self._lock.inode:
            raise StoreUnavailable(replaced(self.path))

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with self._turn, faults(self.path):
            if self._closed:
                raise StoreUnavailable(f"The store {self.path} was closed.")
            try:
                self._connection = self._connection or self._engine.connect()
                run = self._connection.exec_driver_sql
                _when_free(run, begin)
                if begin == "BEGIN":  # which does not lock yet
                    _when_free(run, "PRAGMA schema_version")
                self._check_file()  # before anything is written to a copy that took its place
                yield self._connection
                _when_free(run, "COMMIT")
                self._check_file()  # or whoever is told of it would not find it again
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        """Close the connection: a new one also rolls back what a failed disk left."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(DBAPIError):
                connection.exec_driver_sql("ROLLBACK")
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        name = f"file:{quote(str(self.path.absolute()))}?mode=rw"  # never creates it: see _make
        connection: sqlite3.Connection = sqlite3.connect(name, uri=True, **PLAIN)
        try:
            self._check_file()  # the first statement may write: a journal, another journal mode
            for pragma in PRAGMAS:
                _when_free(connection.execute, f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    def next_seqs(self, connection: Connection, count: int) -> Sequence[int]:
        last, self._base_from = groups.standing(connection)
        return range(last + 1, last + 1 + count)

    def base_from(self, connection: Connection) -> int:
        """As ``next_seqs`` read it: while this transaction writes, nobody else does."""
        return self._base_from

    def announce(self, connection: Connection) -> None:
        """Nothing: ``writing`` notifies, and other processes see that the file has changed."""

    def wait(self, timeout_s: float) -> None:
        self.changes.wait(timeout_s)

    def mark(self) -> Hashable:
        """The file as it looks, once that is old enough to have been changed by every write."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        is_old = time.time() - found.st_mtime > QUIET_S
        return (found.st_ino, found.st_mtime_ns, found.st_size) if is_old else None

    def _stamp(self) -> tuple[int, int]:
        try:
            stat = os.stat(self.path)
        except OSError:
            return (0, 0)
        return (stat.st_mtime_ns, stat.st_size)

    def vacuum(self) -> None:
        with self._turn, faults(self.path):
            self._connection = self._connection or self._engine.connect()
            self._check_file()
            try:
                _when_free(self._connection.exec_driver_sql, "VACUUM")
            except BaseException:
                self._roll_back()
                raise

    def claim(self) -> bool:
        self._claimed = self._take_lock()
        return self._claimed

    def take_lead(self) -> bool:
        self._leads = self._take_lock()
        return self._leads

    def _take_lock(self) -> bool:
        with faults(self.path):
            return self._lock.take()

    def holds_lead(self) -> bool:
        return self._leads

    def drop_lead(self) -> None:
        self._leads = False
        if not self._claimed:
            self._lock.release()

    def close(self) -> None:
        with self._turn:
            if self._closed:
                return
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._lock.close()
        self._engine.dispose()


def check_kind_of_file(path: Path) -> None:
    """Before it is opened: to open a pipe could wait for ever."""
    if not path.is_file():
        raise StoreUnavailable(
            f"{path} is no ordinary file, and a store is a file. Give the path of a file."
        )
    if path.stat().st_size == 0:
        raise StoreCorrupt(
            f"{path} is empty, and a store never is. Restore it from a backup, or remove it to "
            "begin a new run."
        )


def share_cache() -> None:
    """Bound the page caches of all files of this process together, where it serves several runs.

    A cache that would exceed it uses its own pages again, and writes some of a transaction early.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA soft_heap_limit = {SHARED_CACHE}")


class _Turn:
    """A lock that is given in the order in which it was asked for.

    With ``threading.Lock`` a writer that appends in a loop takes it again before a reader that
    waits has woken up.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queue: deque[threading.Lock] = deque()  # the first has its turn, the others wait

    def __enter__(self) -> None:
        mine = threading.Lock()
        mine.acquire()
        with self._guard:
            self._queue.append(mine)
            if len(self._queue) == 1:
                return
        mine.acquire()

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._queue.popleft()
            if self._queue:
                self._queue[0].release()


def _when_free(execute: Callable[[str], object], statement: str) -> None:
    """Execute what takes a lock, waiting for other processes.

    SQLite's own waiting sleeps up to 0.1 s between attempts and then rarely meets the gap between
    two commits of a busy server; looking every millisecond does.
    """
    end = time.monotonic() + BUSY_S
    while True:
        try:
            execute(statement)
        except (DBAPIError, sqlite3.OperationalError) as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.001)
        else:
            return


def _make(path: Path) -> None:
    """Create the file complete or not at all: its name appears once its content is on disk."""
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}{NEW}")
    try:
        make_private(fresh)  # its journals get the same permissions
        engine = create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(fresh), poolclass=NullPool
        )
        with engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA page_size = {PAGE_SIZE}")
            connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")
            t.tables.create_all(connection, checkfirst=False)  # a new file: there are none
            connection.execute(insert(t.schema), {"number": t.SCHEMA})
            connection.commit()
        sync(fresh)
        with suppress(FileExistsError):  # another process was faster: use its file
            os.link(fresh, path)
        sync(path.parent)
    finally:
        for suffix in ("", "-journal"):
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)


def check_identity(connection: Connection, path: Path) -> None:
    if connection.exec_driver_sql("PRAGMA application_id").scalar() != APPLICATION:
        raise StoreCorrupt(
            f"{path} is a database, but not a store of anarchic. Choose another path."
        )
    pragmas = ("page_count", "page_size")
    pages, size = (connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0 for name in pragmas)
    expected, found = pages * size, path.stat().st_size
    if found < expected:  # SQLite itself would take a missing part of the last page for zeros
        raise StoreCorrupt(
            f"{path} was cut off: {found} of {expected} bytes are left. Restore it from a backup."
        )


def _code(error: BaseException | None) -> int:
    """The primary error code of SQLite, 0 where there is none."""
    error = error.orig if isinstance(error, DBAPIError) else error
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and of the system into ours."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise _fault(path, error.orig if isinstance(error, DBAPIError) else error) from error
    except OSError as error:
        raise StoreUnavailable(
            f"The store {path} cannot be used: {error.strerror}. "
            "Check that its directory exists and may be written to."
        ) from error


def _fault(path: Path, error: BaseException | None) -> StoreError:
    code = _code(error)
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"No room left for {path}: nothing was written ({error}). "
            "Free some space on its disk; a server that runs goes on by itself."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(
            f"{path} is damaged or not a database: {error}. "
            "Check the disk and restore the file from a backup."
        )
    if "decode to UTF-8" in str(error) or code in _UNEXPECTED:
        return StoreCorrupt(
            f"{path} does not hold what a store holds: {error}. Restore the file from a backup."
        )
    held = f"Another process has held it for {BUSY_S:.0f} s; find and stop that one."
    remedy = {
        sqlite3.SQLITE_BUSY: held,
        sqlite3.SQLITE_LOCKED: held,
        sqlite3.SQLITE_READONLY: "Make the file, its directory and its disk writable.",
        sqlite3.SQLITE_IOERR: "Check the disk, and limits on file sizes or quotas.",
        sqlite3.SQLITE_CANTOPEN: "Check that its directory exists and that both may be written to.",
    }.get(
        code, "Check that the file exists, may be read and written, and that its disk is healthy."
    )
    return StoreUnavailable(f"{path} cannot be read or written now: {error}. {remedy}")
