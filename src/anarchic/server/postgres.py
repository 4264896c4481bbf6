"""PostgreSQL: any number of servers share one run, and one of them leads.

Several runs can live in one database, each in its own schema (``?options=-csearch_path=name`` in
the address). That a commit is on disk is PostgreSQL's promise: its ``fsync`` must be on.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import product
from math import inf
from typing import Any, final

import psycopg
from psycopg import sql
from psycopg.pq import Format
from sqlalchemy import (
    BigInteger,
    Connection,
    Double,
    LargeBinary,
    Text,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, SQLAlchemyError

from anarchic.errors import ConfigError, StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from anarchic.server import tables as t
from anarchic.server.database import ChangeSignal
from anarchic.server.migrations import check_schema
from anarchic.server.records import FIXED
from anarchic.wire.strict import Buffer

BUSY_S = 30  # how long to wait for a connection from the pool, or for a lock
LEASE_S = 10  # after which the database ends the session of a leader that hangs
HEARTBEAT_S = 2.0
FRESH_S = 1.0  # after its last use a connection is looked at before it is used again
_ARRAYS = {BigInteger: "int8", Text: "text", LargeBinary: "bytea", Double: "float8"}

CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "anarchic",
}
SESSION = (
    "SET synchronous_commit = on",  # an answer must not overtake the disk
    f"SET lock_timeout = '{BUSY_S}s'",
    # A server that is stopped in the middle of a transaction must not hold up the others.
    f"SET idle_in_transaction_session_timeout = '{LEASE_S}s'",
    # The database must notice the death of a whole machine too, to free the lead.
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
)
# What is done for every group of updates is text for psycopg itself, the same whatever the size of
# the group, so that it is parsed once, here and in the database.
_KINDS = [_ARRAYS[type(column.type)] for column in FIXED]
_COLUMNS = [column.name for column in FIXED]
_NEXT_SEQS = "SELECT nextval('updates_seq') FROM generate_series(1, %s)"
_INSERT_UPDATES = (
    f"INSERT INTO updates ({', '.join(_COLUMNS)}) "
    f"SELECT * FROM unnest({', '.join(f'%s::{kind}[]' for kind in _KINDS)}) "
    "ON CONFLICT DO NOTHING RETURNING seq"
)
_BASE_FROM = "SELECT base_from FROM run"
_INSERT_BODY = "INSERT INTO payloads (seq, body) VALUES (%s, %s)"
_MARK = (
    'UPDATE updates SET "order" = each.place, version = each.made '
    "FROM unnest(%s::int8[], %s::int8[], %s::int8[]) AS each (which, place, made) "
    'WHERE seq = each.which AND "order" IS NULL'
)
_DELETE_BODIES = "DELETE FROM payloads WHERE seq = ANY(%s::int8[])"
_NOTIFY = "SELECT pg_notify(%s, '')"
# Bodies hardly shrink: do not try. And reuse the room of dropped bodies soon, not when a fifth
# of the table is dead.
STORAGE = (
    "ALTER TABLE {} ALTER COLUMN body SET STORAGE EXTERNAL",
    "ALTER TABLE {} SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,"
    " toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000)",
)


@final
class Postgres:
    """The run in the schema that ``url`` leads to. See ``Database``."""

    shared = True
    path = None
    largest = 999_000_000  # a message, and with it a value, ends at 2**30 bytes
    links = 1
    insert = staticmethod(insert)

    def __init__(self, url: URL, *, outdated: bool = False) -> None:
        self._name = url.set(drivername="postgresql").render_as_string(hide_password=True)
        self._engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=4,
            max_overflow=12,
            pool_timeout=BUSY_S,
            hide_parameters=True,  # an error must not print four megabytes, or a token's hash
            connect_args={**CONNECT, "cursor_factory": _BinaryCursor},
        )
        event.listen(self._engine, "connect", _prepare)
        event.listen(self._engine, "checkin", _note_use)
        event.listen(self._engine, "checkout", self._look_at)
        self._reader = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._writer = self._engine.execution_options(isolation_level="READ COMMITTED")
        self.changes = ChangeSignal()
        self._closing = threading.Event()
        self._listener: threading.Thread | None = None
        self._lead: psycopg.Connection[Any] | None = None
        self._lead_lock = threading.RLock()
        try:
            with self.writing() as connection:
                self._channel, self._key = _identity(connection)
                _make(connection, self._key, create=not outdated)
                if not outdated:
                    check_schema(connection, self._name)
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._faults(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._faults(), self._writer.connect() as connection:
            connection.begin()  # though psycopg is given the statements past SQLAlchemy
            yield connection
            with _several(connection) as raw:
                if connection.info.pop("news", False):
                    raw.execute(_NOTIFY, (self._channel,))
                connection.commit()

    def next_seqs(self, connection: Connection, count: int) -> Sequence[int]:
        """Numbers of our own; replicas may commit them in another order than they drew them."""
        connection.info["news"] = False
        with _several(connection) as raw:
            return [seq for (seq,) in raw.execute(_NEXT_SEQS, (count,)).fetchall()]

    def base_from(self, connection: Connection) -> int:
        """As ``insert_updates`` read it, if all its updates were new.

        Otherwise a compaction may have dropped, and so moved this, what was found to be known.
        """
        known: int | None = connection.info.pop("base_from")
        return known if known is not None else connection.exec_driver_sql(_BASE_FROM).scalar() or 0

    def insert_updates(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[int]:
        columns = [[row[name] for row in rows] for name in _COLUMNS]
        with _several(connection) as raw:
            inserted, run = raw.execute(_INSERT_UPDATES, columns), raw.execute(_BASE_FROM)
            found = {seq for (seq,) in inserted.fetchall()}
            since = next(iter(run.fetchall()), (0,))[0]
        connection.info["base_from"] = since if len(found) == len(rows) else None
        return found

    def insert_bodies(self, connection: Connection, bodies: Sequence[tuple[int, Buffer]]) -> None:
        with _several(connection) as raw:
            raw.cursor().executemany(_INSERT_BODY, bodies)

    def mark_folded(self, connection: Connection, places: Sequence[tuple[int, int, int]]) -> int:
        columns = [list(each) for each in zip(*places, strict=True)]
        with _several(connection) as raw:
            marked = raw.execute(_MARK, columns)
        return marked.rowcount  # known only now

    def delete_bodies(self, connection: Connection, seqs: Sequence[int]) -> None:
        with _several(connection) as raw:
            raw.execute(_DELETE_BODIES, ([*seqs],))

    def announce(self, connection: Connection) -> None:
        connection.info["news"] = True  # told with the commit

    def mark(self) -> None:
        """It cannot be told without asking the database."""

    def wait(self, timeout_s: float) -> None:
        with self._lead_lock:
            if self._listener is None:
                self._listener = threading.Thread(
                    target=self._listen, name="anarchic-listen", daemon=True
                )
                self._listener.start()
        self.changes.wait(timeout_s)

    def _listen(self) -> None:
        while not self._closing.is_set():
            with suppress(StoreError, psycopg.Error), closing(self._open()) as connection:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                self.changes.notify()  # for what was missed before we listened
                while not self._closing.is_set():
                    for _ in connection.notifies(timeout=0.5, stop_after=1):
                        self.changes.notify()
            self.changes.notify()  # a notice may be lost with the connection
            self._closing.wait(1.0)

    def _open(self) -> psycopg.Connection[Any]:
        """A connection outside the pool, which belongs to one purpose."""
        with self._faults():
            _, parameters = self._engine.dialect.create_connect_args(self._engine.url)
            connection = psycopg.connect(**parameters, **CONNECT, autocommit=True)
            try:
                _prepare(connection, None)
            except BaseException:
                connection.close()
                raise
            return connection

    def vacuum(self) -> None:
        """Nothing: autovacuum does it, or an operator with VACUUM FULL."""

    def claim(self) -> bool:
        return True

    def take_lead(self) -> bool:
        with self._lead_lock:
            if self.holds_lead():
                return True
            connection = self._open()
            try:
                with self._faults():
                    query = "SELECT pg_try_advisory_lock(%s)"
                    if connection.execute(query, (self._key,)).fetchone() != (True,):
                        connection.close()
                        return False
                    if connection.info.server_version >= 140000:
                        connection.execute(f"SET idle_session_timeout = '{LEASE_S}s'")
            except BaseException:
                connection.close()
                raise
            self._lead = connection
            threading.Thread(
                target=self._beat, args=(connection,), name="anarchic-lead", daemon=True
            ).start()
            return True

    def _beat(self, connection: psycopg.Connection[Any]) -> None:
        """Keep the lease while this process runs; one that is stopped loses it."""
        while not self._closing.wait(HEARTBEAT_S):
            if self._lead is not connection or not self.holds_lead():
                return

    def holds_lead(self) -> bool:
        with self._lead_lock:
            if self._lead is None:
                return False
            try:
                self._lead.execute("SELECT 1")
            except psycopg.Error:
                self.drop_lead()
                return False
            return True

    def drop_lead(self) -> None:
        with self._lead_lock:
            connection, self._lead = self._lead, None
            if connection is not None:
                connection.close()  # which frees the lock

    def close(self) -> None:
        self._closing.set()
        self.drop_lead()
        if self._listener is not None:
            self._listener.join(5.0)
        self._engine.dispose()

    def _look_at(self, raw: Any, record: Any, proxy: Any) -> None:
        """The database may have been restarted since the connection was used."""
        if time.monotonic() - record.info.get("used_s", inf) < FRESH_S:
            return
        try:
            self._engine.dialect.do_ping(raw)
        except psycopg.Error as error:
            raise InvalidatePoolError("The connection is gone.") from error

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Translate errors of PostgreSQL into ours."""
        try:
            yield
        except DBAPIError as error:
            raise self._fault(error.orig) from error
        except (psycopg.Error, SQLAlchemyError) as error:
            raise self._fault(error) from error

    def _fault(self, error: BaseException | None) -> StoreError:
        state = getattr(error, "sqlstate", None) or ""
        said = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if state == "53100":
            return StoreFull(
                f"No room left in {self._name}: nothing was written ({said}). "
                "Free some space on the database's disk; a server that runs goes on by itself."
            )
        if state in CORRUPT or state[:2] in ("23", "22"):
            return StoreCorrupt(
                f"{self._name} does not hold what a store holds: {said}. "
                "Check the database's disk and restore it from a backup."
            )
        return StoreUnavailable(
            f"{self._name} cannot be read or written now: {said}. "
            "Check that the database runs, can be reached, and lets this user write."
        )


# Data or an index is corrupted; a table or column that we made is gone.
CORRUPT = ("XX001", "XX002", "42P01", "42703", "42883")


class _BinaryCursor(psycopg.Cursor[Any]):
    """Bodies come as they are, not as hexadecimal text of twice the length."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.format = Format.BINARY


@contextmanager
def _several(connection: Connection) -> Iterator[psycopg.Connection[Any]]:
    """Statements of psycopg's own in the transaction, sent together until a result is asked for."""
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, psycopg.Connection)
    try:
        with raw.pipeline():
            yield raw
    except psycopg.Error as error:
        if raw.closed:
            connection.invalidate(error)
        raise


def _note_use(raw: object, record: Any) -> None:
    record.info["used_s"] = time.monotonic()


def _prepare(connection: psycopg.Connection[Any], _: object) -> None:
    before, connection.autocommit = connection.autocommit, True
    for statement in SESSION:
        connection.execute(statement)
    connection.autocommit = before


def _identity(connection: Connection) -> tuple[str, int]:
    """A channel for news and a number for locks, different for every run in a database."""
    place = connection.execute(select(func.current_schema())).scalar()
    digest = hashlib.sha256(f"anarchic {place}".encode()).digest()
    return f"anarchic_{digest.hex()[:16]}", int.from_bytes(digest[:8], "big", signed=True)


def _make(connection: Connection, key: int, *, create: bool) -> None:
    """Create the tables where there are none, one replica at a time."""
    connection.execute(select(func.pg_advisory_xact_lock(key ^ 1)))
    there = connection.execute(select(func.to_regclass("store_schema"))).scalar()
    if there is None and not create:
        raise ConfigError("There is no store at this address: give that of the server.")
    if there is None:
        t.tables.create_all(connection)
        for table, statement in product(("payloads", "models", "state", "rows"), STORAGE):
            connection.execute(text(statement.format(table)))
        connection.execute(insert(t.schema), {"number": t.SCHEMA})
