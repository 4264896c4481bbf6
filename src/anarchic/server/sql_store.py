"""A store in an SQL database, with one set of tables for SQLite and for PostgreSQL.

What the two do differently is behind ``Database``; everything that decides whether an update
counts once is here, once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, final

from sqlalchemy import Connection, bindparam, delete, func, select, tuple_, update

from anarchic.errors import ConfigError, Deposed, StoreCorrupt, StoreError
from anarchic.server import sql_tables as t
from anarchic.server.database import Database
from anarchic.server.sql_rows import (
    FIXED,
    check_storable,
    delete_each,
    read_body,
    read_folded,
    read_json,
    read_run,
    rows_of,
    update_row,
    upsert,
)
from anarchic.server.store import (
    Account,
    Buffer,
    Folded,
    NewUpdate,
    Publication,
    Receipt,
    StoredRun,
)

MARK = ""  # no worker's name: this row of workers holds another number after every change
TRACE_CHUNK = 2000  # rows read at a time, so that a long trace never holds up the writer


@final
class SqlStore:
    """See ``Store``. After ``StoreUnavailable`` from ``append`` or ``publish`` it is not known
    whether the transaction took place (an answer may be lost after the commit): sending the same
    updates again, or reading ``run``, settles it."""

    def __init__(self, database: Database, *, keep_payloads: bool | None, history: int) -> None:
        self._database = database
        self._keep_payloads = keep_payloads
        self._history = history
        self._insert = database.insert

    @property
    def shared(self) -> bool:
        return self._database.shared

    def create(self, settings: Mapping[str, Any], model: bytes, state: bytes) -> StoredRun:
        for name, body in {"model": model, "state of the rule": state}.items():
            if len(body) > self._database.largest:
                raise ConfigError(
                    f"The {name} has {len(body)} bytes, but the database holds at most "
                    f"{self._database.largest} in one value. Train a smaller model."
                )
        keep = bool(self._keep_payloads)
        new = StoredRun(uuid.uuid4().hex, dict(settings), 0, epoch=0, folded=0, keep_payloads=keep)
        text = json.dumps(new.settings)
        row = {
            "one": 1,
            "id": new.id,
            "settings": text,
            "seal": t.seal(f"run {new.id}", text.encode()),
            "version": 0,
            "epoch": 0,
            "folded": 0,
            "keep_payloads": keep,
        }
        once = self._insert(t.run).on_conflict_do_nothing().returning(t.run.c.id)
        with self._database.writing() as connection:
            if connection.execute(once, row).one_or_none() is None:
                raise ConfigError(
                    "This store already holds a run: go on with it, or choose another store."
                )
            self._put_model(connection, 0, model)
            self._put_state(connection, new, state)
            self._database.announce(connection)
        return new

    def run(self) -> StoredRun | None:
        with self._database.reading() as connection:
            return self._run(connection)

    def append(self, updates: Sequence[NewUpdate]) -> list[Receipt]:
        if not updates:
            return []
        for new in updates:
            check_storable(new, self._database.largest)
        first: dict[tuple[str, str], NewUpdate] = {}
        for new in updates:
            first.setdefault((new.worker, new.id), new)
        with self._database.writing() as connection:
            seqs = dict(zip(first, self._database.next_seqs(connection, len(first)), strict=True))
            accepted = self._insert_new(connection, first, seqs)
            before = self._find(connection, [key for key in first if seqs[key] not in accepted])
            if accepted:
                self._database.announce(connection)
        receipts = []
        for new in updates:
            key = (new.worker, new.id)
            seq, digest = before.get(key) or (seqs[key], bytes(first[key].digest))
            if digest != bytes(new.digest):
                receipts.append(Receipt("conflict", seq))
            elif key not in before and first[key] is new:
                receipts.append(Receipt("accepted", seq))
            else:
                receipts.append(Receipt("duplicate", seq))
        return receipts

    def _insert_new(
        self,
        connection: Connection,
        first: Mapping[tuple[str, str], NewUpdate],
        seqs: Mapping[tuple[str, str], int],
    ) -> set[int]:
        """Insert what is not there yet; the ``seq`` of each that was inserted."""
        once = self._insert(t.updates).on_conflict_do_nothing().returning(t.updates.c.seq)
        # Sorted, so that replicas which insert the same keys wait for each other in one direction.
        facts = [update_row(first[key], seqs[key]) for key in sorted(first)]
        accepted = set(connection.execute(once, facts).scalars())
        bodies = [
            {"seq": seqs[key], "body": new.body}
            for key, new in first.items()
            if seqs[key] in accepted
        ]
        if bodies:
            connection.execute(self._insert(t.payloads), bodies)
        return accepted

    def _find(
        self, connection: Connection, keys: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[int, bytes]]:
        if not keys:
            return {}
        u = t.updates.c
        query = select(u.seq, u.worker, u.id, u.digest).where(tuple_(u.worker, u.id).in_(keys))
        found = {(row.worker, row.id): (row.seq, row.digest) for row in rows_of(connection, query)}
        if len(found) != len(keys):
            raise StoreCorrupt(
                "The database refuses updates as known that it cannot find: an index is damaged. "
                "Restore the store from a backup, or rebuild its indices."
            )
        return found

    def seen(self, worker: str, id: str, digest: bytes) -> int | None:
        u = t.updates.c
        query = select(u.seq).where(u.worker == worker, u.id == id, u.digest == digest)
        with self._database.reading() as connection:
            found = rows_of(connection, query)
        return found[0].seq if found else None

    def waiting(self, first: int = 0, limit: int | None = None) -> list[tuple[int, str]]:
        u = t.updates.c
        query = select(u.seq, u.worker).where(u.order.is_(None)).order_by(u.seq).limit(limit)
        if first > 0:
            query = query.where(u.seq >= first)
        with self._database.reading() as connection:
            return [(row.seq, row.worker) for row in rows_of(connection, query)]

    def publish(self, publication: Publication) -> None:
        p = publication
        with self._database.writing() as connection:
            run = self._step(connection, p)
            self._mark(connection, p.folded, first=run.folded - len(p.folded))
            if not run.keep_payloads:
                delete_each(connection, t.payloads.c.seq, [seq for seq, _ in p.folded])
            if p.version != p.previous:  # a published version never changes
                self._put_model(connection, p.version, p.model)
                old = t.models.c.version <= p.version - self._history
                if run.keep_payloads:  # a replay begins with the first model
                    old &= t.models.c.version > 0
                connection.execute(delete(t.models).where(old))
            self._put_state(connection, run, p.state)
            self._put_rows(connection, p.rows)
            delete_each(connection, t.rows.c.worker, p.forgotten)
            if p.revoked:
                dropped = [{"version": version, "worker": worker} for version, worker in p.revoked]
                connection.execute(self._insert(t.revoked), dropped)
            self._database.announce(connection)

    def _step(self, connection: Connection, p: Publication) -> StoredRun:
        """Move the run on, if it stands where the publication supposes, led by whom it says."""
        r = t.run.c
        keep = {} if self._keep_payloads is None else {"keep_payloads": self._keep_payloads}
        step = (
            update(t.run)
            .where(r.version == p.previous, r.epoch == p.epoch)
            .values(version=p.version, folded=r.folded + len(p.folded), **keep)
            .returning(*t.run.c)
        )
        after = connection.execute(step).one_or_none()
        if after is None:
            now = self._run(connection)
            stands = f"at version {now.version}, epoch {now.epoch}" if now else "nowhere"
            raise Deposed(
                f"Version {p.version} builds on version {p.previous} in epoch {p.epoch}, but the "
                f"run stands {stands}: another process leads. Nothing was written; lead again "
                "and go on from the stored state."
            )
        return read_run(after)

    def _mark(
        self, connection: Connection, folded: Sequence[tuple[int, int]], *, first: int
    ) -> None:
        if not folded:
            return
        u = t.updates.c
        marked = connection.execute(
            update(t.updates)
            .where(u.seq == bindparam("which"), u.order.is_(None))
            .values(order=bindparam("place"), version=bindparam("made")),
            [
                {"which": seq, "place": first + index, "made": version}
                for index, (seq, version) in enumerate(folded)
            ],
        )
        if marked.rowcount != len(folded):
            raise StoreCorrupt(
                f"Of {len(folded)} updates to fold, {len(folded) - marked.rowcount} are unknown "
                "or were folded before. Nothing was written; start again from the stored state."
            )

    def _put_model(self, connection: Connection, version: int, model: bytes) -> None:
        mark = t.seal(f"model {version}", model)
        row = {"version": version, "seal": mark, "body": model}
        connection.execute(self._insert(t.models), row)

    def _put_state(self, connection: Connection, run: StoredRun, state: bytes) -> None:
        row = {"one": 1, "seal": t.seal(_state_of(run), state), "body": state}
        upsert(connection, self._insert, t.state, "one", [row])

    def _put_rows(self, connection: Connection, rows: Mapping[str, bytes]) -> None:
        sealed = [
            {"worker": worker, "seal": t.seal(f"row of {worker}", body), "body": body}
            for worker, body in rows.items()
        ]
        upsert(connection, self._insert, t.rows, "worker", sealed)

    def model(self, version: int) -> bytes | None:
        m = t.models.c
        with self._database.reading() as connection:
            found = rows_of(connection, select(m.body, m.seal).where(m.version == version))
        return t.unseal(f"model {version}", found[0].body, found[0].seal) if found else None

    def state(self) -> tuple[bytes, dict[str, bytes]]:
        with self._database.reading() as connection:
            run = self._run(connection)
            states = rows_of(connection, select(t.state))
            rows = rows_of(connection, select(t.rows))
        if run is None:
            raise StoreError("The store holds no run yet: create one first.")
        if len(states) != 1:
            raise StoreCorrupt("The state of the rule is missing. Restore the store from a backup.")
        return t.unseal(_state_of(run), states[0].body, states[0].seal), {
            row.worker: t.unseal(f"row of {row.worker}", row.body, row.seal) for row in rows
        }

    def revoked(self) -> dict[int, list[str]]:
        with self._database.reading() as connection:
            found = sorted(
                (row.version, row.worker) for row in rows_of(connection, select(t.revoked))
            )
        return {v: [w for _, w in rows] for v, rows in groupby(found, key=itemgetter(0))}

    def trace(self) -> Iterator[Folded]:
        u = t.updates.c
        with self._database.reading() as connection:
            run = self._run(connection)
            waiting = rows_of(
                connection,
                select(*FIXED, u.order, u.version).where(u.order.is_(None)).order_by(u.seq),
            )
        total = 0 if run is None else run.folded
        for start in range(0, total, TRACE_CHUNK):
            end = min(start + TRACE_CHUNK, total)
            query = (
                select(*FIXED, u.order, u.version)
                .where(u.order >= start, u.order < end)
                .order_by(u.order)
            )
            with self._database.reading() as connection:
                found = rows_of(connection, query)
            if [row.order for row in found] != list(range(start, end)):
                raise StoreCorrupt(
                    f"Of the updates folded as {start} to {end - 1} the trace holds {len(found)}. "
                    "Restore the store from a backup."
                )
            yield from map(read_folded, found)
        yield from map(read_folded, waiting)

    def body(self, seq: int) -> Buffer | None:
        query = (
            select(*FIXED, t.payloads.c.body)
            .select_from(t.updates.join(t.payloads, t.payloads.c.seq == t.updates.c.seq))
            .where(t.updates.c.seq == seq)
        )
        with self._database.reading() as connection:
            found = rows_of(connection, query)
        return read_body(found[0]) if found else None

    def accounts(self) -> dict[str, Account]:
        with self._database.reading() as connection:
            found = rows_of(connection, select(t.workers).where(t.workers.c.worker != MARK))
        return {row.worker: Account(row.worker, row.token_hash, row.revoked) for row in found}

    def accounts_mark(self) -> bytes:
        w = t.workers.c
        with self._database.reading() as connection:
            found = rows_of(connection, select(w.token_hash).where(w.worker == MARK))
        mark: bytes = found[0].token_hash if found else b""
        return mark

    def put_account(self, account: Account) -> None:
        row = {
            "worker": account.worker,
            "token_hash": account.token_hash,
            "revoked": account.revoked,
        }
        mark = {"worker": MARK, "token_hash": uuid.uuid4().bytes, "revoked": True}
        with self._database.writing() as connection:
            upsert(connection, self._insert, t.workers, "worker", [row, mark])
            self._database.announce(connection)

    def add_evaluation(self, version: int, metrics: Mapping[str, float]) -> None:
        row = {"version": version, "metrics": json.dumps(dict(metrics))}
        with self._database.writing() as connection:
            upsert(connection, self._insert, t.evaluations, "version", [row])

    def evaluations(self, limit: int) -> list[tuple[int, dict[str, float]]]:
        query = select(t.evaluations).order_by(t.evaluations.c.version.desc()).limit(limit)
        with self._database.reading() as connection:
            found = rows_of(connection, query)
        return [(row.version, read_json(row.metrics, "evaluation")) for row in reversed(found)]

    def lead(self) -> int | None:
        if not self._database.take_lead():
            return None
        r = t.run.c
        try:
            with self._database.writing() as connection:
                epoch = connection.execute(
                    update(t.run).values(epoch=r.epoch + 1).returning(r.epoch)
                ).scalar()
        except BaseException:
            self._database.drop_lead()
            raise
        if epoch is None:
            self._database.drop_lead()
            raise StoreError("The store holds no run to lead yet: create one first.")
        return int(epoch)

    def still_leads(self) -> bool:
        return self._database.holds_lead()

    def resign(self) -> None:
        self._database.drop_lead()

    def wait(self, timeout_s: float) -> None:
        self._database.wait(timeout_s)

    def close(self) -> None:
        self._database.close()

    def _run(self, connection: Connection) -> StoredRun | None:
        """Where the run stands, and whether the trace agrees."""
        found = rows_of(connection, select(t.run))
        if not found:
            return None
        row = found[0]
        last = connection.execute(select(func.max(t.updates.c.order))).scalar()
        if row.folded != (0 if last is None else last + 1):
            raise StoreCorrupt(
                f"The run counts {row.folded} folded updates, but the last one in the trace is "
                f"number {last}. Restore the store from a backup."
            )
        return read_run(row)


def _state_of(run: StoredRun) -> str:
    """The place of a state: sealed with it, so that it is never paired with another version."""
    return f"state at version {run.version} after {run.folded} updates of run {run.id}"
