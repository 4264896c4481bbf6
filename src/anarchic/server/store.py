"""The store of a run: what is durable, and when. The same tables in SQLite and in PostgreSQL.

The promise rests on three rules. An update counts as accepted once ``append`` has returned, and
then it is on disk. The aggregator, not the insert, decides in which order updates are folded, and
``publish`` stores that order together with the version that it made, all or nothing, before
anybody sees the version. Whoever publishes names the version that it builds on and the epoch in
which it leads; if either is no longer true, nothing is written.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, final

from sqlalchemy import Connection, Select, delete, select, update

from anarchic.errors import ConfigError, Deposed, StoreCorrupt, StoreError
from anarchic.server import records
from anarchic.server import tables as t
from anarchic.server.database import Database, database_at
from anarchic.server.records import NewUpdate, Publication, Receipt, StoredRun, rows_of
from anarchic.server.settings import HISTORY, HISTORY_BYTES
from anarchic.server.thinning import Stored, Versions
from anarchic.server.watch import Watch
from anarchic.wire.strict import Buffer

_U, _R = t.updates.c, t.run.c
_Key = tuple[str, str]  # of an update: worker and id
TRACE_CHUNK = 2000  # rows read at a time, so that a long trace never holds up the writer


def open_store(
    where: str | Path,
    *,
    keep_payloads: bool | None = None,
    history: int = HISTORY,
    history_bytes: int = HISTORY_BYTES,
    keep_every: int | None = None,
    create: bool = True,
) -> Store:
    """The store at a path (or ``sqlite:///path``) or at a ``postgresql://`` address.

    It is created where there is none, unless a file must be there (``create=False``, for those who
    only read: a mistyped path creates nothing). The newest ``history`` versions are kept; older
    ones are thinned (see ``thinning``) and stay within ``history_bytes`` together with the newest,
    but for every ``keep_every``th, which stays for ever. With ``keep_payloads`` the bodies of
    updates stay after they were folded, and the first model stays too, for a replay; by default a
    run goes on as it has done, and a new one does not keep them. The run records what it does.
    """
    if history < 1:
        raise ConfigError(f"A store keeps at least the newest model, got history={history}.")
    versions = Versions(history=history, most_bytes=history_bytes, every=keep_every)
    return Store(database_at(where, create=create), keep_payloads=keep_payloads, versions=versions)


@final
class Store:
    """Keeps one run durably. Methods may be called from any thread.

    They raise ``StoreFull`` when the disk is full, ``StoreUnavailable`` when the database cannot be
    read or written now, and ``StoreCorrupt`` when what it holds cannot be right. After
    ``StoreUnavailable`` from ``append`` or ``publish`` it is not known whether the transaction took
    place (an answer may be lost after the commit): sending the same updates again, or reading
    ``run``, settles it.
    """

    def __init__(
        self, database: Database, *, keep_payloads: bool | None, versions: Versions
    ) -> None:
        self.watch = Watch()  # whether it answers
        self._database = database
        self._keep_payloads, self.versions = keep_payloads, versions
        self.insert = self._insert = database.insert
        self.path = database.path
        self.idles = False  # one of many runs: not read while nobody writes
        self.shared = database.shared  # whether other processes may append to the same run

    def create(self, settings: Mapping[str, Any], model: bytes, state: bytes) -> StoredRun:
        """Start a run at version 0; refused where one exists."""
        for name, body in {"model": model, "state of the rule": state}.items():
            if len(body) > self._database.largest:
                raise ConfigError(
                    f"The {name} has {len(body)} bytes, but the database holds at most "
                    f"{self._database.largest} in one value. Train a smaller model."
                )
        keep = bool(self._keep_payloads)
        new = StoredRun(uuid.uuid4().hex, dict(settings), 0, epoch=0, folded=0, keep_payloads=keep)
        text = json.dumps(new.settings)
        seal = t.seal(f"run {new.id}", text.encode())
        once = self._insert(t.run).on_conflict_do_nothing().returning(t.run.c.id)
        with self._writing() as connection:
            row = {**asdict(new), "one": 1, "settings": text, "seal": seal}
            if connection.execute(once, row).one_or_none() is None:
                raise ConfigError(
                    "This store already holds a run: go on with it, or choose another store."
                )
            self._put_model(connection, 0, model)
            self._put_state(connection, new, state)
            self._database.announce(connection)
        return new

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A moment of the store, for modules that keep tables of their own in it."""
        with self.watch.transaction(), self._database.reading() as connection:
            yield connection
        self.watch.links = self._database.links

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, of which other servers hear."""
        with self._writing() as connection:
            yield connection
            self._database.announce(connection)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self.watch.transaction(), self._database.writing() as connection:
            yield connection
        self.watch.links = self._database.links

    def mark(self) -> Hashable:
        """The same while nobody writes and nothing fails; None if that is unknown."""
        return self._database.mark() if self.idles and self.watch.failure is None else None

    def run(self) -> StoredRun | None:
        """Where the run stands, or None where there is none."""
        with self.reading() as connection:
            return records.find_run(connection)

    def append(self, updates: Sequence[NewUpdate]) -> list[Receipt]:
        """Make updates durable, all in one transaction, and say of each what became of it."""
        if not updates:
            return []
        first: dict[_Key, NewUpdate] = {}
        for new in updates:
            records.check_storable(new, self._database.largest)
            first.setdefault((new.worker, new.id), new)
        with self._writing() as connection:
            seqs = dict(zip(first, self._database.next_seqs(connection, len(first)), strict=True))
            accepted, before, old = self._insert_new(connection, first, seqs)
            if accepted:
                self._database.announce(connection)
        receipts = []
        for new in updates:
            key = (new.worker, new.id)
            seq, digest = before.get(key) or (seqs[key], bytes(first[key].digest))
            outcome: records.Outcome = "duplicate"
            if digest != bytes(new.digest):
                outcome = "conflict"
            elif key not in before:
                outcome = "too_old" if key in old else "accepted" if first[key] is new else outcome
            receipts.append(Receipt(outcome, seq))
        return receipts

    def _insert_new(
        self, connection: Connection, first: Mapping[_Key, NewUpdate], seqs: Mapping[_Key, int]
    ) -> tuple[set[int], dict[_Key, tuple[int, bytes]], set[_Key]]:
        """Insert what is not there yet: the ``seq`` of each that was; those that were there before;
        those that are too old for the trace to say whether they were."""
        # Sorted, so that replicas which insert the same keys wait for each other in one direction.
        facts = [records.update_row(first[key], seqs[key]) for key in sorted(first)]
        accepted = self._database.insert_updates(connection, facts)
        before = records.find_updates(
            connection, [key for key in first if seqs[key] not in accepted]
        )
        since = self._database.base_from(connection)
        old = {key for key, new in first.items() if new.base_version < since} - before.keys()
        records.delete_each(connection, _U.seq, sorted(accepted & {seqs[key] for key in old}))
        accepted -= {seqs[key] for key in old}
        if len(accepted) + len(before) + len(old) != len(first):
            raise StoreCorrupt(
                "The database refuses updates as known that it cannot find: an index is damaged. "
                "Restore the store from a backup, or rebuild its indices."
            )
        new = [(seqs[key], new.body) for key, new in first.items() if seqs[key] in accepted]
        if new:
            self._database.insert_bodies(connection, new)
        return accepted, before, old

    def seen(self, worker: str, id: str, digest: bytes) -> int | None:
        """The seq of an update that was accepted with these bytes."""
        query = select(_U.seq).where(_U.worker == worker, _U.id == id, _U.digest == digest)
        found = self._read(query)
        return found[0].seq if found else None

    def waiting(self, first: int = 0, limit: int | None = None) -> list[tuple[int, str]]:
        """(seq, worker) of every update that no version holds, the oldest first.

        With ``first`` only from that seq on, with ``limit`` at most this many. Do not use ``first``
        on a shared store: a slow replica may commit an update below it later.
        """
        query = select(_U.seq, _U.worker).where(_U.order.is_(None)).order_by(_U.seq).limit(limit)
        if first > 0:
            query = query.where(_U.seq >= first)
        return [(row.seq, row.worker) for row in self._read(query)]

    def publish(self, publication: Publication) -> None:
        """Make a version durable; ``Deposed`` if another leads or the version has moved on."""
        p = publication
        with self._writing() as connection:
            run = self._step(connection, p)
            mark, first = self._database.mark_folded, run.folded - len(p.folded)
            records.mark_folded(connection, mark, p.folded, first=first)
            if not run.keep_payloads:
                self._database.delete_bodies(connection, [seq for seq, _ in p.folded])
            if p.version != p.previous:  # a published version never changes
                kept = self.versions.reason(p.previous, p.version)
                self._put_model(connection, p.version, p.model, kept)
                self.versions.thin(
                    connection, epoch=p.epoch, previous=p.previous,
                    new=Stored(p.version, len(p.model)), keep_first=run.keep_payloads,
                )  # fmt: skip
            self._put_state(connection, run, p.state)
            rows = [records.sealed(f"row of {w}", row, worker=w) for w, row in p.rows.items()]
            records.upsert(connection, self._insert, t.rows, rows)
            records.delete_each(connection, t.rows.c.worker, p.forgotten)
            if p.revoked:
                dropped = [{"version": version, "worker": worker} for version, worker in p.revoked]
                connection.execute(self._insert(t.revoked), dropped)
            records.put_clipped(connection, self._insert, p.clipped)
            if p.also is not None:
                p.also(connection)
            self._database.announce(connection)

    def _step(self, connection: Connection, p: Publication) -> StoredRun:
        """Move the run on, if it stands where the publication supposes, led by whom it says."""
        keep = {} if self._keep_payloads is None else {"keep_payloads": self._keep_payloads}
        known = [_R.version == p.previous, _R.epoch == p.epoch]
        if p.first is not None:
            known.append(_R.folded == p.first)
        step = (
            update(t.run)
            .where(*known)
            .values(version=p.version, folded=_R.folded + len(p.folded), **keep)
            .returning(*t.run.c)
        )
        after = connection.execute(step).one_or_none()
        if after is None:
            now = records.find_run(connection)
            stands = f"at version {now.version}, epoch {now.epoch}" if now else "nowhere"
            raise Deposed(
                f"Version {p.version} builds on version {p.previous} in epoch {p.epoch}, but the "
                f"run stands {stands}: another process leads. Nothing was written; lead again "
                "and go on from the stored state."
            )
        return records.read_run(after)

    def _put_model(
        self, connection: Connection, version: int, model: bytes, kept: str | None = None
    ) -> None:
        row = records.sealed(f"model {version}", model, version=version)
        connection.execute(self._insert(t.models), {**row, "kept": kept})

    def _put_state(self, connection: Connection, run: StoredRun, state: bytes) -> None:
        row = records.sealed(state_of(run), state, one=1)
        records.upsert(connection, self._insert, t.state, [row])

    def model(self, version: int) -> bytes | None:
        """A version that is still kept."""
        found = self._read(select(t.models).where(t.models.c.version == version))
        return t.unseal(f"model {version}", found[0].body, found[0].seal) if found else None

    def standing(self) -> records.Standing:
        """The newest version with everything that a leader needs to go on from it."""
        with self.reading() as connection:  # one moment, whoever publishes meanwhile
            run = records.find_run(connection)
            if run is None:
                raise StoreError("The store holds no run yet: create one first.")
            newest = select(t.models).where(t.models.c.version == run.version)
            models, states = rows_of(connection, newest), rows_of(connection, select(t.state))
            rows, epochs = rows_of(connection, select(t.rows)), records.read_epochs(connection)
        if not (models and states):
            missing = "state of the rule" if models else f"model of version {run.version}"
            raise StoreCorrupt(f"The {missing} is missing. Restore the store from a backup.")
        return records.Standing(
            run,
            t.unseal(f"model {run.version}", models[0].body, models[0].seal),
            t.unseal(state_of(run), states[0].body, states[0].seal),
            {row.worker: t.unseal(f"row of {row.worker}", row.body, row.seal) for row in rows},
            epochs,
        )

    def epochs(self) -> records.Epochs:
        """In which epochs versions were published, from the oldest on."""
        with self.reading() as connection:
            return records.read_epochs(connection)

    def revoked(self) -> dict[int, list[str]]:
        """Whose rows were dropped after which version, as publications said; sorted by name."""
        found = sorted((row.version, row.worker) for row in self._read(select(t.revoked)))
        return {v: [w for _, w in rows] for v, rows in groupby(found, key=itemgetter(0))}

    def trace(self) -> Iterator[records.Folded]:
        """Every accepted update since ``run.trace_from``: the folded ones in their order, then the
        others by ``seq``."""
        with self.reading() as connection:
            run = records.find_run(connection)
            query = select(t.updates).where(_U.order.is_(None)).order_by(_U.seq)
            waiting = rows_of(connection, query)
        since, total = (0, 0) if run is None else (run.trace_from, run.folded)
        for start in range(since, total, TRACE_CHUNK):
            end = min(start + TRACE_CHUNK, total)
            query = select(t.updates).where(_U.order >= start, _U.order < end).order_by(_U.order)
            found = self._read(query)
            if [row.order for row in found] != list(range(start, end)):
                raise StoreCorrupt(
                    f"Of the updates folded as {start} to {end - 1} the trace holds {len(found)}. "
                    "Restore the store from a backup."
                )
            yield from map(records.read_folded, found)
        yield from map(records.read_folded, waiting)

    def body(self, seq: int) -> Buffer | None:
        """The body of an update, if it is still kept."""
        both = t.updates.join(t.payloads, t.payloads.c.seq == t.updates.c.seq)
        query = select(*records.FIXED, t.payloads.c.body).select_from(both)
        found = self._read(query.where(t.updates.c.seq == seq))
        return records.read_body(found[0]) if found else None

    def add_evaluation(self, version: int, metrics: Mapping[str, float]) -> None:
        row = {"version": version, "metrics": json.dumps(dict(metrics))}
        with self._writing() as connection:
            records.upsert(connection, self._insert, t.evaluations, [row])

    def evaluations(self, limit: int) -> list[tuple[int, dict[str, float]]]:
        """Of the newest ``limit`` versions that were evaluated, the oldest first."""
        query = select(t.evaluations).order_by(t.evaluations.c.version.desc()).limit(limit)
        found = reversed(self._read(query))
        return [(row.version, records.read_json(row.metrics, "evaluation")) for row in found]

    def claim(self) -> bool:
        """Be the only server until ``close``, where the store cannot be shared; False if another
        is. Those who only read, or add tokens, need not ask."""
        return self._database.claim()

    def vacuum(self) -> None:  # after ``claim``: see ``Database``
        self._database.vacuum()

    def lead(self) -> int | None:
        """Try to become the one that aggregates: a new epoch, or None while another leads.

        Leadership lasts until ``resign``, ``close``, or the death of the process or connection.
        """
        if not self._database.take_lead():
            return None
        try:
            with self._writing() as connection:
                query = update(t.run).values(epoch=_R.epoch + 1).returning(_R.epoch, _R.version)
                run = connection.execute(query).one_or_none()
                if run is None:
                    raise StoreError("The store holds no run to lead yet: create one first.")
                self._begin_epoch(connection, run.epoch, run.version)
        except BaseException:
            self._database.drop_lead()
            raise
        return int(run.epoch)

    def _begin_epoch(self, connection: Connection, epoch: int, version: int) -> None:
        """Name it: a store that was restored from a copy counts epochs and versions again."""
        name = f"{epoch}-{secrets.token_hex(4)}".encode()
        unused = t.epochs.c.version >= version  # nothing was published in these
        connection.execute(delete(t.epochs).where(unused))
        place = records.epoch_place(epoch, version)
        row = records.sealed(place, name, epoch=epoch, version=version)
        connection.execute(self._insert(t.epochs), row)

    def still_leads(self) -> bool:
        return self._database.holds_lead()

    def resign(self) -> None:
        self._database.drop_lead()

    def wait(self, timeout_s: float) -> None:
        """Return when another process may have appended or published, or after the timeout."""
        self._database.wait(timeout_s)

    def hear(self, told: Callable[[], object]) -> None:
        """Call this whenever ``wait`` would return early: in another thread, so be brief."""
        self._database.changes.hear(told)

    def close(self) -> None:
        self._database.close()

    def _read(self, query: Select[Any]) -> Sequence[Any]:
        with self.reading() as connection:
            return rows_of(connection, query)


def state_of(run: StoredRun) -> str:
    """The place of a state: sealed with it, so that it is never paired with another version."""
    return f"state at version {run.version} after {run.folded} updates of run {run.id}"
