"""Compacting a store: old rows of the trace and of evaluations go, what was counted stays.

The ids of updates in the trace are what makes each count once. So together with them the run's
``base_from`` moves on: an update that builds on an older version is refused, whether it was
accepted before or not. Both happen in one transaction, and whoever appends reads ``base_from``
after it has inserted. Two that compact at once take turns by a lock on the run. So it is safe
beside servers, and may be stopped at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

from sqlalchemy import Connection, delete, func, select, update

from anarchic.errors import ConfigError, StoreError
from anarchic.server import tables as t
from anarchic.server.activity import settle
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.log import Log
from anarchic.server.records import SET_ASIDE, StoredRun, delete_each, find_run
from anarchic.server.settings import RunSettings, ServerSettings
from anarchic.server.store import Store, open_store

CHUNK = 2000  # rows in one transaction, so that no server waits for long
EVALUATIONS = 1000  # of old versions that stay
EVERY_S = 600.0  # how often a server looks for rows that have become old
FOLLOW_S = 10.0  # how often one that does not lead looks whether it does
_U, _R = t.updates.c, t.run.c
_ROW = (_U.order, _U.seq, _U.version, _U.base_version, _U.received_s)


@dataclass(frozen=True)
class Compacted:
    """What was deleted, and what a compacted store is like."""

    updates: int
    evaluations: int
    base_from: int  # the oldest version that an update may build on
    free_bytes: int | None = None  # inside a file of SQLite, for what comes later
    returned_bytes: int | None = None  # by which the file has become smaller


def compact_store(where: str | Path, *, before: int, drop_payloads: bool = False) -> Compacted:
    """Compact the store at a place, beside its servers. A file that no server has open becomes
    smaller; in one that is served, what was freed is used for what comes."""
    with closing(open_store(where, create=False)) as store:
        done = compact(
            store, before=before, drop_payloads=drop_payloads, counted=partial(settle, store)
        )
        if done.free_bytes and store.claim():
            returned = done.free_bytes
            store.vacuum()
            left = free_bytes(store) or 0
            return replace(done, free_bytes=left, returned_bytes=returned - left)
    return done


@final
class Compactor:
    """Compacts the store of a running server by age, in small steps."""

    def __init__(
        self, store: Store, log: Log, *, after_s: float, max_staleness: int, clock: Clock = SYSTEM
    ) -> None:
        self._store, self._log, self._clock = store, log, clock
        self._after_s, self._max_staleness = after_s, max_staleness

    async def watch(self, leads: Callable[[], bool]) -> None:
        """Look every few minutes, while this server leads."""
        while True:
            if leads():
                try:
                    await asyncio.to_thread(self.compact)
                except StoreError as error:
                    self._log("store_error", reason=str(error))
            await asyncio.sleep(EVERY_S if leads() else FOLLOW_S)

    def compact(self) -> Compacted | None:
        """Delete what is old enough. What workers may still build on stays, whatever the clock
        says: nothing is refused that was not too stale before."""
        run = self._store.run()
        before = 0 if run is None else run.version - self._max_staleness
        if before < 1:
            return None
        now = self._clock.time()

        def is_old(received_s: float) -> bool:
            """A time to come is that of a clock which was wrong: it must not stop this for long."""
            return not now - self._after_s <= received_s <= now

        counted = partial(settle, self._store)
        done = compact(
            self._store, before=before, is_old=is_old, drop_payloads=True, counted=counted
        )
        if done.updates:
            self._log("compacted", updates=done.updates, evaluations=done.evaluations)
        return done


def compactor_of(
    store: Store, run: RunSettings, settings: ServerSettings, log: Log
) -> Compactor | None:
    """What compacts by age, if the operator asked for it; refused where payloads are kept."""
    stored = store.run()
    if run.compact_after_s is None or stored is None:
        return None
    if stored.keep_payloads and run.keep_payloads is None:
        raise ConfigError(
            "This run keeps payloads for a replay, and --compact-after deletes them: leave it out, "
            "or say --no-keep-payloads."
        )
    staleness = settings.limits.max_staleness
    return Compactor(store, log, after_s=run.compact_after_s, max_staleness=staleness)


def compact(
    store: Store,
    *,
    before: int,
    is_old: Callable[[float], bool] = lambda received_s: True,
    drop_payloads: bool = False,
    counted: Callable[[], int] | None = None,
) -> Compacted:
    """Delete from the trace what was folded into versions below ``before``, up to the last update
    that ``is_old`` by when it was received; thin the evaluations of those versions.

    ``counted`` returns up to which update, by order, everything is in the table ``activity``: only
    those are deleted. Where payloads are kept it is refused, for a replay needs everything, unless
    ``drop_payloads`` says that there shall be none.
    """
    run = store.run()
    if run is None:
        raise ConfigError("The store holds no run: there is nothing to compact.")
    _check(run, before, drop_payloads=drop_payloads)
    until = run.folded if counted is None else counted()
    rows = 0
    while (gone := _delete_some(store, before, is_old, until)) > 0:
        rows += gone
    with store.writing() as connection:
        after = find_run(connection)
        assert after is not None
        first = connection.execute(select(_U.version).where(_U.order == after.trace_from)).scalar()
        oldest = min(before, first or before) if after.trace_from else 0
        connection.execute(delete(t.revoked).where(t.revoked.c.version < oldest))
        evaluations = _thin_evaluations(connection, oldest)
    return Compacted(rows, evaluations, after.base_from, free_bytes(store))


def _check(run: StoredRun, before: int, *, drop_payloads: bool) -> None:
    if not 1 <= before <= run.version:
        raise ConfigError(
            "--before must be a version from 1 to the newest, which is "
            f"{run.version}; got {before}."
        )
    if run.keep_payloads and not drop_payloads:
        raise ConfigError(
            "This run keeps the payloads of its updates, for `anarchic replay` and `anarchic "
            "rollback --without`, which need all of them. Say --drop-payloads to do without, after "
            "a backup: anarchic store backup STORE --out FILE, or pg_dump of a database."
        )


def _delete_some(store: Store, before: int, is_old: Callable[[float], bool], until: int) -> int:
    """Delete the oldest rows that may go, ``CHUNK`` at most; how many there were."""
    with store.writing() as connection:
        run = _locked_run(connection)
        query = select(*_ROW).where(_U.order >= run.trace_from).order_by(_U.order).limit(CHUNK)
        found = connection.execute(query).all()
        end = min(until, _last(connection, run))
        count = 0
        for place, row in enumerate(found):
            if row.order >= end or (row.version != SET_ASIDE and row.version >= before):
                break
            if is_old(row.received_s):
                count = place + 1  # and what was folded before it, whatever its clock said
        if count:
            _delete(connection, run, found[:count])
    return count


def _locked_run(connection: Connection) -> StoredRun:
    """The run, which nobody else changes before this transaction ends: another that compacts or
    publishes waits. It is read once it is locked, for it may change until then."""
    connection.execute(select(_R.one).with_for_update())  # nothing in SQLite: it has one writer
    run = find_run(connection)
    assert run is not None
    return run


def _last(connection: Connection, run: StoredRun) -> int:
    """The first update, by order, that stays whatever its age: the last one shows how many were
    folded, the one with the highest number which numbers were given."""
    highest = select(_U.order).where(_U.seq == select(func.max(_U.seq)).scalar_subquery())
    order = connection.execute(highest).scalar()
    return run.folded - 1 if order is None else min(run.folded - 1, order)


def _delete(connection: Connection, run: StoredRun, gone: Sequence[Any]) -> None:
    last = gone[-1].order
    delete_each(connection, t.payloads.c.seq, [row.seq for row in gone])
    connection.execute(delete(t.updates).where(_U.order >= run.trace_from, _U.order <= last))
    base_from = max(run.base_from, 1 + max(row.base_version for row in gone))
    connection.execute(update(t.run).values(trace_from=last + 1, base_from=base_from))


def _thin_evaluations(connection: Connection, before: int) -> int:
    """Leave ``EVALUATIONS`` of versions below ``before``, evenly, and those of stored versions."""
    column = t.evaluations.c.version
    old = list(connection.execute(select(column).where(column < before).order_by(column)).scalars())
    kept = {*connection.execute(select(t.models.c.version)).scalars()}
    step = max(1.0, len(old) / EVALUATIONS)
    kept |= {old[int(place * step)] for place in range(int(len(old) / step))}
    gone = [version for version in old if version not in kept]
    delete_each(connection, column, gone)
    return len(gone)


def free_bytes(store: Store) -> int | None:
    """Bytes of unused pages in a file of SQLite; None for PostgreSQL, which knows itself."""
    if store.shared:
        return None
    with store.reading() as connection:
        pages, size = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)
            for name in ("freelist_count", "page_size")
        )
    return pages * size
