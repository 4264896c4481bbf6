"""What SQLite and PostgreSQL do differently: locks, leadership, waiting, meanings of errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, final

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from anarchic.errors import ConfigError, StoreUnavailable
from anarchic.wire.strict import Buffer


class Database(Protocol):
    """What differs between databases. Everything raises ``StoreError``, never SQLAlchemy's own."""

    shared: bool  # by several servers
    largest: int  # bytes that one value can hold
    links: int  # names (hard links) of its file when it was last used
    changes: ChangeSignal
    insert: Callable[..., Any]  # SQLAlchemy has one per dialect, for ON CONFLICT

    @property
    def path(self) -> Path | None:
        """Of its file, where it is one."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment of the database."""

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that is durable once left, or has not happened."""

    def announce(self, connection: Connection) -> None:
        """Wake all who wait, once this transaction is committed."""

    def mark(self) -> Hashable:
        """Something that stays the same while nobody writes; None where that is not known."""

    def next_seqs(self, connection: Connection, count: int) -> Sequence[int]: ...

    def base_from(self, connection: Connection) -> int:
        """``base_from`` of the run, asked after ``next_seqs`` and after the updates are inserted:
        whoever compacts the trace raises it in the transaction that deletes ids."""

    def insert_updates(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[int]:
        """Insert the rows of updates whose worker and id are not there yet; the ``seq`` of those.

        This and the next three are done for every group of updates or for every version, so a
        database may do it its own way.
        """

    def insert_bodies(self, connection: Connection, bodies: Sequence[tuple[int, Buffer]]) -> None:
        """Insert the bodies of updates, by ``seq``."""

    def mark_folded(self, connection: Connection, places: Sequence[tuple[int, int, int]]) -> int:
        """Give updates their (seq, order, version), if they have none; how many had none."""

    def delete_bodies(self, connection: Connection, seqs: Sequence[int]) -> None: ...

    def wait(self, timeout_s: float) -> None: ...

    def vacuum(self) -> None:
        """Give unused room in a file back; where the database does so itself, nothing."""

    def claim(self) -> bool:
        """Keep other servers out until ``close``, unless they may share it; False if one is in."""

    def take_lead(self) -> bool: ...
    def holds_lead(self) -> bool: ...
    def drop_lead(self) -> None: ...
    def close(self) -> None: ...


@final
class ChangeSignal:
    """Wakes threads after a write. A waiting thread notices every write since it last returned.

    ``look`` returns something that differs after a write by another process. It is compared with
    what the same thread saw before, every ``look_every_s`` while the thread waits.
    """

    def __init__(self, look: Callable[[], object] = lambda: None, look_every_s: float = 60) -> None:
        self._look, self._look_every_s = look, look_every_s
        self._written = threading.Condition()
        self._writes = 0
        self._hearers: list[Callable[[], object]] = []  # of every write that is noticed
        self._seen = threading.local()

    def notify(self) -> None:
        with self._written:
            self._writes += 1
            self._written.notify_all()
        for told in self._hearers:
            told()

    def hear(self, told: Callable[[], object]) -> None:
        self._hearers.append(told)

    def wait(self, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        with self._written:
            while True:
                now = (self._writes, self._look())
                left = end - time.monotonic()
                if now != getattr(self._seen, "last", None) or left <= 0:
                    self._seen.last = now
                    return
                self._written.wait(min(left, self._look_every_s))


def path_of(where: str | Path) -> Path | None:
    """The file of a store in SQLite; None for one at another address."""
    text = str(where)
    if "://" not in text:
        return Path(where)
    prefix = "sqlite:///"
    return Path(text.removeprefix(prefix)) if text.startswith(prefix) else None


def exists(where: str | Path) -> bool:
    """Whether there is a file for this store; one at an address counts as there."""
    path = path_of(where)
    return path is None or path.exists()


def database_at(where: str | Path, *, create: bool, outdated: bool = False) -> Database:
    """The database that a path or an address means.

    One with the tables of an earlier version is refused, unless ``outdated``: to bring it up to
    date. Then nothing is created either.
    """
    if isinstance(where, Path) or "://" not in where:
        return _file(Path(where), create=create, outdated=outdated)
    scheme, _, rest = where.partition("://")
    if scheme == "postgres":  # as libpq and many hosts spell it
        where = f"postgresql://{rest}"
    try:
        url = make_url(where)
    except ArgumentError as error:
        raise ConfigError(f"Not an address of a store: it begins with {scheme}://.") from error
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"A store is a path, sqlite:///path or postgresql://..., not {scheme}://..."
        )
    if kind == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise ConfigError("A store must outlive its server: give sqlite:/// a file.")
        return _file(Path(str(url.database)), create=create, outdated=outdated)
    try:
        from anarchic.server.postgres import Postgres
    except ImportError as error:
        raise ConfigError(
            "A store in PostgreSQL needs psycopg: pip install 'anarchic[postgres]'."
        ) from error
    from anarchic.server.places import in_schema

    return Postgres(in_schema(url), outdated=outdated)


def _file(path: Path, *, create: bool, outdated: bool) -> Database:
    from anarchic.server.sqlite import Sqlite

    if path.is_dir():
        raise StoreUnavailable(_several(path))
    if not (create or path.exists()):
        raise ConfigError(f"There is no store {path}: give the path that the server was given.")
    return Sqlite(path, outdated=outdated)


def _several(path: Path) -> str:
    """What to say of a directory where the store of one run is asked for."""
    from anarchic.server.places import Directory

    names = Directory(path).names()
    named = f" (there are {', '.join(names)})" if names else ""
    return (
        f"{path} is a directory, and a store is a file. If it holds several runs, give the store "
        f"of one: {path / 'NAME.db'}{named}."
    )
