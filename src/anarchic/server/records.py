"""What a store keeps: its records, how they become rows, and whether rows read back are whole."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from operator import attrgetter, itemgetter
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Select, bindparam, delete, func, select, tuple_

from anarchic.errors import StoreCorrupt, StoreError
from anarchic.server import tables as t
from anarchic.wire.strict import Buffer

SET_ASIDE = 0  # the version of updates that no version holds: no update made the first model
CLIPPED = "clip "  # before a seq: a row of ``activity`` with the weight that the guard gave it
LONGEST_NAME = 1000  # bytes; PostgreSQL's index holds two of them
# What never changes after an update was accepted.
FIXED = [column for column in t.updates.c if column.name not in ("order", "version")]
_TOLD = [column.name for column in FIXED if column.name not in ("seq", "seal")]


@dataclass(frozen=True, slots=True)
class NewUpdate:
    """An update that was checked and waits to become durable."""

    worker: str
    id: str
    digest: bytes  # SHA-256 of the body: the same id with another body is a conflict
    base_version: int
    local_steps: int
    local_lr: float
    samples: int
    norm: float  # of local_lr * direction
    received_s: float  # wall clock
    body: Buffer  # as it was received


Outcome = Literal["accepted", "duplicate", "conflict", "too_old"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a new update. ``seq`` is that of the update which counts."""

    outcome: Outcome
    seq: int  # of no meaning if the update is too old: it was not stored


@dataclass(frozen=True, slots=True)
class Folded:
    """A row of the trace: one accepted update, and what became of it."""

    seq: int
    worker: str
    id: str
    base_version: int
    local_steps: int
    local_lr: float
    samples: int
    norm: float
    received_s: float
    order: int | None  # its place in the order of folding, from 0 over the whole run
    # That it helped to make, or ``SET_ASIDE``; both are None until a version holds the update.
    version: int | None


@dataclass(frozen=True, slots=True)
class Publication:
    """A new version, and everything that must become true with it."""

    epoch: int
    previous: int  # the version that it builds on
    version: int
    folded: Sequence[tuple[int, int]]  # (seq, version that it helped to make), in order of folding
    model: bytes  # the snapshot as workers pull it
    state: bytes  # the rule's state without parameters and rows
    rows: Mapping[str, bytes] = field(default_factory=dict)  # changed rows of AFA-CS, by worker
    forgotten: Sequence[str] = ()  # workers whose rows are gone
    # (version, worker): the row was dropped before any update after that version was folded, since
    # the worker was revoked. The rule knows nothing of it, so a replay must be told.
    revoked: Sequence[tuple[int, str]] = ()
    # Updates folded before these. A publication that only sets updates aside keeps the version: by
    # this number its second attempt is told from its first.
    first: int | None = None
    clipped: Sequence[tuple[int, float]] = ()  # (seq, weight) that the guard gave, below 1
    also: Callable[[Connection], None] | None = None  # what else becomes true with it


class FoldedUpdate(NamedTuple):
    """An update that was folded, as the server tells it: to its log, and to what is counted."""

    seq: int
    worker: str
    staleness: int
    loss: float | None
    weight: float = 1.0  # what the guard multiplied it by


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What a store knows of its run: its settings, where it stands, and what it keeps."""

    id: str
    settings: Mapping[str, Any]  # the rule and its settings, JSON-able, fixed at creation
    version: int
    epoch: int  # of the last leader
    folded: int  # updates folded so far, that is the next order
    keep_payloads: bool  # bodies of updates and the first model are kept, for a replay
    trace_from: int = 0  # the first update, by order, that a compacted trace still holds
    base_from: int = 0  # the oldest version that an update may build on


@dataclass(frozen=True, slots=True)
class Standing:
    """What a leader needs to go on from the newest version, all of one moment."""

    run: StoredRun
    model: bytes
    state: bytes  # of the rule
    rows: Mapping[str, bytes]  # of the rule, by worker
    epochs: Epochs


# (version, name) of each epoch in which versions were published, and of the present one: what was
# published after ``version``, until the next epoch, was published in it.
Epochs = Sequence[tuple[int, str]]


def epoch_of(epochs: Epochs, version: int) -> str | None:
    """The epoch in which a version was published; None where that was not recorded."""
    place = bisect_left(epochs, version, key=itemgetter(0))
    return epochs[place - 1][1] if place else None


@dataclass(frozen=True, slots=True)
class Account:
    """A worker that may push. Only the hash of its token is stored."""

    worker: str
    token_hash: bytes
    revoked: bool
    rights: str = "pull,push"  # separated by commas; "operate" lets it steer and see everything
    expires_s: float | None = None  # wall clock; None: never
    used_s: float | None = None  # when the token was last used, about
    old_hash: bytes | None = None  # the token before the last rotation,
    old_until_s: float | None = None  # and until when it is still taken


def rows_of(connection: Connection, query: Select[Any]) -> Sequence[Any]:
    """All rows, having looked that each value is of its kind: SQLite would hand out any."""
    found = connection.execute(query).all()
    kinds = [
        (column.type.python_type, getattr(column, "nullable", True) or column is t.payloads.c.body)
        for column in query.selected_columns
    ]
    for row in found:
        for value, (kind, may_lack) in zip(row, kinds, strict=True):
            if not (isinstance(value, kind) or (value is None and may_lack)):
                raise StoreCorrupt(
                    f"The store holds a {type(value).__name__} where a {kind.__name__} belongs. "
                    "Check the disk and restore the store from a backup."
                )
    return found


def find_run(connection: Connection) -> StoredRun | None:
    """Where the run stands, and whether the trace agrees."""
    last = select(func.max(t.updates.c.order)).scalar_subquery().label("last")
    # One statement, hence of one moment also where a transaction that writes sees what others do.
    row = next(iter(rows_of(connection, select(*t.run.c, last))), None)
    if row is None:
        return None
    if row.folded != (0 if row.last is None else row.last + 1):
        raise StoreCorrupt(
            f"The run counts {row.folded} folded updates, but the last one in the trace is "
            f"number {row.last}. Restore the store from a backup."
        )
    return read_run(row)


_facts_of_run = attrgetter("version", "epoch", "folded", "keep_payloads", "trace_from", "base_from")


def read_run(row: Any) -> StoredRun:  # a database row
    """The run, if its settings are those that were sealed."""
    t.unseal(f"run {row.id}", row.settings.encode(), row.seal)
    settings = read_json(row.settings, "settings of the run")
    return StoredRun(row.id, settings, *_facts_of_run(row))


def read_epochs(connection: Connection) -> Epochs:
    """All epochs, if they are those that were written."""
    found = rows_of(connection, select(t.epochs).order_by(t.epochs.c.epoch))
    places = [epoch_place(row.epoch, row.version) for row in found]
    return [
        (row.version, t.unseal(place, row.body, row.seal).decode())
        for place, row in zip(places, found, strict=True)
    ]


def epoch_place(epoch: int, version: int) -> str:
    return f"epoch {epoch} after version {version}"


def read_body(row: Any) -> Buffer:  # a database row
    """The body of an update, if it is the one that was accepted."""
    t.unseal_update(row)
    if row.body is None or hashlib.sha256(row.body).digest() != row.digest:
        what = "missing" if row.body is None else "damaged"
        raise StoreCorrupt(
            f"The body of update {row.seq} by {row.worker} is {what}. It was not folded. "
            "Check the disk and restore the store from a backup."
        )
    body: Buffer = row.body
    return body


_facts = attrgetter(*Folded.__dataclass_fields__)


def read_folded(row: Any) -> Folded:  # a database row
    """A row of the trace, if nothing has changed that was fixed when it was accepted."""
    t.unseal_update(row)
    return Folded(*_facts(row))


def read_json(text: str, what: str) -> dict[str, Any]:
    """The values that were written as JSON."""
    try:
        values: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise StoreCorrupt(f"The stored {what} is damaged: {error}.") from error
    return values


def check_storable(new: NewUpdate, largest: int) -> None:
    """Refuse what a database cannot hold, or would change: it must not spoil a whole group."""
    numbers = (new.base_version, new.local_steps, new.samples)
    floats = (new.local_lr, new.norm, new.received_s)
    fits = (
        len(new.body) <= largest
        and all(-(2**63) <= number < 2**63 for number in numbers)
        and all(map(isfinite, floats))
        and all(len(name.encode(errors="replace")) <= LONGEST_NAME for name in (new.worker, new.id))
        and all(name.isprintable() for name in (new.worker, new.id))
    )
    if not fits:
        raise StoreError(
            f"Update {new.id[:50]!r} of worker {new.worker[:50]!r} cannot be stored: names may "
            f"have {LONGEST_NAME} printable bytes, whole numbers 63 bits, other numbers must "
            f"be finite, bodies may have {largest} bytes."
        )


def update_row(new: NewUpdate, seq: int) -> dict[str, Any]:
    """The row of an accepted update, sealed."""
    facts = {"seq": seq, **{name: getattr(new, name) for name in _TOLD}}
    return {**facts, "seal": t.seal_update(SimpleNamespace(**facts))}


def sealed(place: str, body: bytes, **key: int | str) -> dict[str, Any]:
    """The row of a body that belongs to this place."""
    return {**key, "seal": t.seal(place, body), "body": body}


def upsert(
    connection: Connection, insert: Callable[..., Any], table: Any, values: list[dict[str, Any]]
) -> None:
    """Insert rows, or replace those with the same key; ``insert`` is the dialect's own."""
    if values:
        put, keys = insert(table), table.primary_key.columns.keys()
        changed = {name: put.excluded[name] for name in values[0] if name not in keys}
        put = put.on_conflict_do_update(index_elements=keys, set_=changed)
        connection.execute(put, values)


def delete_each(connection: Connection, column: Any, keys: Sequence[Any]) -> None:
    if keys:
        query = delete(column.table).where(column == bindparam("which"))
        connection.execute(query, [{"which": key} for key in keys])


def mark_folded(
    connection: Connection,
    mark: Callable[[Connection, Sequence[tuple[int, int, int]]], int],
    folded: Sequence[tuple[int, int]],
    *,
    first: int,
) -> None:
    """Give updates their places in the order of folding, from ``first`` on."""
    if not folded:
        return
    places = [(seq, first + place, version) for place, (seq, version) in enumerate(folded)]
    marked = mark(connection, places)
    if marked != len(folded):
        raise StoreCorrupt(
            f"Of {len(folded)} updates to fold, {len(folded) - marked} are unknown "
            "or were folded before. Nothing was written; start again from the stored state."
        )


def find_updates(
    connection: Connection, keys: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, bytes]]:
    """Seq and digest of those updates that are there, by worker and id."""
    if not keys:
        return {}
    u = t.updates.c
    query = select(u.seq, u.worker, u.id, u.digest).where(tuple_(u.worker, u.id).in_(keys))
    return {(row.worker, row.id): (row.seq, row.digest) for row in rows_of(connection, query)}


def put_clipped(
    connection: Connection, insert: Callable[..., Any], clipped: Sequence[tuple[int, float]]
) -> None:
    """Keep the weights of clipped updates until the updates are counted in ``activity``."""
    rows = [{"worker": f"{CLIPPED}{seq}", "body": repr(weight)} for seq, weight in clipped]
    upsert(connection, insert, t.activity, rows)
