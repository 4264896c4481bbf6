"""The tables of a store, the same in every database, and the seals on what they hold.

Nothing in ``updates`` is ever deleted: it is the trace of the run, and the memory of which ids were
seen. Bodies live in their own table, so that dropping them leaves the trace compact.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
)

from anarchic.errors import StoreCorrupt, StoreUnavailable

if TYPE_CHECKING:
    from anarchic.server.store import Buffer

SCHEMA = 3  # raised when tables, or the bytes in them, change; see migrate.py

tables = MetaData()
# In SQLite only a primary key declared INTEGER is the row number, which needs no second index.
Number = BigInteger().with_variant(Integer(), "sqlite")

seqs = Sequence("updates_seq", metadata=tables)  # where replicas draw numbers at the same time

schema = Table("store_schema", tables, Column("number", Integer, nullable=False))

run = Table(
    "run",
    tables,
    Column("one", Integer, primary_key=True, autoincrement=False),  # always 1: a store has one run
    Column("id", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("folded", BigInteger, nullable=False),
    Column("keep_payloads", Boolean, nullable=False),  # by the last publication
)

updates = Table(
    "updates",
    tables,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("worker", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("base_version", BigInteger, nullable=False),
    Column("local_steps", BigInteger, nullable=False),
    Column("local_lr", Double, nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("norm", Double, nullable=False),
    Column("received_s", Double, nullable=False),
    Column("seal", LargeBinary, nullable=False),  # of all the above
    Column("order", BigInteger),
    Column("version", BigInteger),
    UniqueConstraint("worker", "id", name="updates_once"),
)
# Unique, so that no place in the fold can be given twice; it also gives the trace in its order.
Index("updates_order", updates.c.order, unique=True)
# Only what waits is in this index: finding it costs the same however long the trace has become.
# SQLite needs no second one: there the first holds those without an order too, by seq.
Index("updates_pending", updates.c.seq, postgresql_where=updates.c.order.is_(None)).ddl_if(
    dialect="postgresql"
)

payloads = Table(
    "payloads",
    tables,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)

models = Table(
    "models",
    tables,
    Column("version", Number, primary_key=True, autoincrement=False),
    Column("seal", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

state = Table(
    "state",
    tables,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("seal", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

rows = Table(
    "rows",
    tables,
    Column("worker", Text, primary_key=True),
    Column("seal", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

revoked = Table(
    "revoked",
    tables,
    Column("version", Number, primary_key=True, autoincrement=False),
    Column("worker", Text, primary_key=True),
)

workers = Table(
    "workers",
    tables,
    Column("worker", Text, primary_key=True),
    Column("token_hash", LargeBinary, nullable=False),
    Column("revoked", Boolean, nullable=False),
)

evaluations = Table(
    "evaluations",
    tables,
    Column("version", Number, primary_key=True, autoincrement=False),
    Column("metrics", Text, nullable=False),
)


def seal(place: str, body: Buffer) -> bytes:
    """A checksum of a body that holds only in its own place (``model 7``), so that neither a
    flipped bit nor a row that ended up elsewhere goes unnoticed."""
    checksum = hashlib.sha256(place.encode() + b"\0")
    checksum.update(body)
    return checksum.digest()


def unseal(place: str, body: bytes, mark: bytes) -> bytes:
    if seal(place, body) != mark:
        raise StoreCorrupt(
            f"The stored {place} is damaged: its checksum does not match its {len(body)} bytes. "
            "Nothing was served from it. Check the disk and restore the store from a backup."
        )
    return body


def seal_update(row: Any) -> bytes:  # a NewUpdate with a seq, as attributes or a database row
    """A short checksum of what is fixed when an update is accepted."""
    numbers = struct.pack(
        "<qqqdqdd",
        row.seq,
        row.base_version,
        row.local_steps,
        row.local_lr,
        row.samples,
        row.norm,
        row.received_s,
    )
    text = f"{len(row.worker)} {row.worker}{row.id}".encode()
    return hashlib.sha256(numbers + bytes(row.digest) + text).digest()[:16]


def unseal_update(row: Any) -> None:
    if seal_update(row) != row.seal:
        raise StoreCorrupt(
            f"Update {row.seq} in the store is damaged: its checksum does not match. "
            "Check the disk and restore the store from a backup."
        )


def check_schema(number: int | None) -> None:
    if number is None:
        raise StoreCorrupt("The store does not say which schema it has. Restore it from a backup.")
    if number != SCHEMA:
        remedy = "Upgrade anarchic" if number > SCHEMA else "Go on with the version that began it"
        raise StoreUnavailable(
            f"The store has schema {number}, this version of anarchic reads {SCHEMA}. {remedy}."
        )
