"""The tables of a store, the same in every database, and the seals on what they hold.

``updates`` is the trace of the run, and the memory of which ids were seen: only ``compact`` deletes
anything in it, and says in ``run`` since when updates can be told from new ones. Bodies live in
their own table, so that dropping them leaves the trace compact.
"""

from __future__ import annotations

import hashlib
import struct
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from anarchic.errors import StoreCorrupt
from anarchic.wire.strict import Buffer

SCHEMA = 5  # raised when tables, or the bytes in them, change; see ``migrations``

_Big, _Bytes = sa.BigInteger, sa.LargeBinary
# In SQLite only a primary key declared INTEGER is the row number, which needs no second index.
_Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

tables = sa.MetaData()
seqs = sa.Sequence("updates_seq", metadata=tables)  # where replicas draw numbers at the same time


def _key(name: str, kind: Any = _Number) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _columns(**kinds: Any) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name, kind in kinds.items()]


schema = sa.Table("store_schema", tables, *_columns(number=sa.Integer))
run = sa.Table(
    "run",
    tables,
    _key("one", sa.Integer),  # always 1: a store has one run
    *_columns(id=sa.Text, settings=sa.Text, seal=_Bytes, version=_Big, epoch=_Big, folded=_Big),
    *_columns(keep_payloads=sa.Boolean),  # by the last publication
    # Where the trace was compacted: the first update by order that it still holds, and the oldest
    # version that an update may build on, for the ids of older ones are gone.
    *_columns(trace_from=_Big, base_from=_Big),
)
updates = sa.Table(
    "updates",
    tables,
    _key("seq"),
    *_columns(worker=sa.Text, id=sa.Text, digest=_Bytes, base_version=_Big, local_steps=_Big),
    *_columns(local_lr=sa.Double, samples=_Big, norm=sa.Double, received_s=sa.Double),
    *_columns(seal=_Bytes),  # of all the above
    sa.Column("order", _Big),
    sa.Column("version", _Big),
    sa.UniqueConstraint("worker", "id", name="updates_once"),
)
# Unique, so that no place in the fold can be given twice; it also gives the trace in its order.
sa.Index("updates_order", updates.c.order, unique=True)
# Only what waits is in this index: finding it costs the same however long the trace has become.
# SQLite needs no second one: there the first holds those without an order too, by seq.
sa.Index("updates_pending", updates.c.seq, postgresql_where=updates.c.order.is_(None)).ddl_if(
    dialect="postgresql"
)
payloads = sa.Table("payloads", tables, _key("seq"), *_columns(body=_Bytes))
models = sa.Table(
    "models",
    tables,
    _key("version"),
    *_columns(seal=_Bytes, body=_Bytes),
    sa.Column("kept", sa.Text),  # why this version is kept for ever; null: only for a while
)
state = sa.Table("state", tables, _key("one", sa.Integer), *_columns(seal=_Bytes, body=_Bytes))
rows = sa.Table("rows", tables, _key("worker", sa.Text), *_columns(seal=_Bytes, body=_Bytes))
revoked = sa.Table("revoked", tables, _key("version"), _key("worker", sa.Text))
# Who led after which version, by a name that no other epoch has, not even one with the same number
# in a copy of the store. A version belongs to the last epoch that began before it.
epochs = sa.Table(
    "epochs", tables, _key("epoch"), *_columns(version=_Big, seal=_Bytes, body=_Bytes)
)
workers = sa.Table(
    "workers",
    tables,
    _key("worker", sa.Text),
    *_columns(token_hash=_Bytes, revoked=sa.Boolean),
    *_columns(rights=sa.Text),  # of pull, push and operate, separated by commas
    sa.Column("expires_s", sa.Double),
    sa.Column("used_s", sa.Double),
    sa.Column("old_hash", _Bytes),  # the token before the last rotation
    sa.Column("old_until_s", sa.Double),
)
# What operators asked for, in order. ``version`` is the one after which a command took effect, or
# ``reason`` says why it could not; both are null while it waits for the leader.
commands = sa.Table(
    "commands",
    tables,
    _key("number"),
    *_columns(kind=sa.Text, arguments=sa.Text, issued_by=sa.Text, issued_s=sa.Double, seal=_Bytes),
    sa.Column("version", _Big),
    sa.Column("applied_s", sa.Double),
    sa.Column("reason", sa.Text),
)
# What each worker did, as JSON, counted so far; the row of no worker is the server's own.
activity = sa.Table("activity", tables, _key("worker", sa.Text), *_columns(body=sa.Text))
evaluations = sa.Table("evaluations", tables, _key("version"), *_columns(metrics=sa.Text))


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


_numbers = attrgetter(
    "seq", "base_version", "local_steps", "local_lr", "samples", "norm", "received_s"
)


def seal_update(row: Any) -> bytes:  # a NewUpdate with a seq, as attributes or a database row
    """A short checksum of what is fixed when an update is accepted."""
    numbers = struct.pack("<qqqdqdd", *_numbers(row))
    text = f"{len(row.worker)} {row.worker}{row.id}".encode()
    return hashlib.sha256(numbers + bytes(row.digest) + text).digest()[:16]


def unseal_update(row: Any) -> None:
    if seal_update(row) != row.seal:
        raise StoreCorrupt(
            f"Update {row.seq} in the store is damaged: its checksum does not match. "
            "Check the disk and restore the store from a backup."
        )
