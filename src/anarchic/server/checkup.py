"""Looking through a whole store for damage, beside its servers: what is wrong, and what it costs.

Every seal, digest, order and count is compared. Bodies are read one at a time, rows in chunks, each
in a transaction of its own, so that servers hardly wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from anarchic.errors import OtherSchema, StoreError
from anarchic.server import records
from anarchic.server import tables as t
from anarchic.server.commands import commands
from anarchic.server.records import SET_ASIDE, StoredRun, rows_of
from anarchic.server.store import Store, open_store, state_of

CHUNK = 2000
MOST = 100  # damaged things that are named, per kind
_U = t.updates.c

# What damage costs, and what is left if there is none of it.
SERVING, PULLING, REPLAY, COUNTING, ASIDE = (
    "serving the run", "pulling old versions", "replay", "exactly-once", "evaluations and activity"
)  # fmt: skip
ALL = (SERVING, COUNTING, PULLING, REPLAY, ASIDE)


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it was written."""

    what: str
    costs: str


@dataclass
class Checkup:
    """What was looked at, and what was found."""

    looked_at: dict[str, int] = field(default_factory=dict)
    damaged: list[Damage] = field(default_factory=list)

    @property
    def works(self) -> list[str]:
        """What the damage leaves."""
        lost = {damage.costs for damage in self.damaged}
        return [each for each in ALL if each not in lost]

    def found(self, what: str, costs: str) -> None:
        self.damaged.append(Damage(what, costs))


def check_store(where: str | Path) -> Checkup:
    """Look through a store. Nothing is changed; ``OtherSchema`` says that nothing was looked at."""
    checkup = Checkup()
    try:
        store = open_store(where, create=False)
    except OtherSchema:
        raise
    except StoreError as error:
        for costs in ALL:
            checkup.found(str(error), costs)
        return checkup
    with closing(store):
        _each(checkup, SERVING, lambda: _pages(store, checkup))
        run: list[StoredRun] = []
        _each(checkup, SERVING, lambda: run.extend(filter(None, [store.run()])))
        if run:
            for costs, look in _LOOKS:
                _each(checkup, costs, partial(look, store, run[0], checkup))
        elif not checkup.damaged:
            checkup.looked_at["runs"] = 0
    return checkup


def _each(checkup: Checkup, costs: str, look: Callable[[], object]) -> None:
    """Look at one part; what cannot be read at all is damage too."""
    try:
        look()
    except StoreError as error:
        checkup.found(str(error), costs)


def _pages(store: Store, checkup: Checkup) -> None:
    """Pages and indices of a file; PostgreSQL checks its own (pg_amcheck)."""
    if store.shared:
        return
    with store.reading() as connection:
        query = f"PRAGMA integrity_check({MOST})"
        said = [row[0] for row in connection.exec_driver_sql(query)]
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    checkup.looked_at["pages"] = int(pages or 0)
    for line in said:
        if line != "ok":
            checkup.found(f"SQLite says: {line}.", COUNTING if "index" in line else SERVING)


def _models(store: Store, run: StoredRun, checkup: Checkup) -> None:
    with store.reading() as connection:
        versions = list(connection.execute(select(t.models.c.version)).scalars())
    for version in versions:
        costs = SERVING if version == run.version else PULLING
        _each(checkup, costs, partial(store.model, version))
    checkup.looked_at["models"] = len(versions)
    if run.version not in versions and store.model(run.version) is None:
        checkup.found(f"The model of version {run.version}, the newest, is missing.", SERVING)
    if run.keep_payloads and not run.trace_from and 0 not in versions:
        checkup.found("The first model is missing.", REPLAY)


def _state(store: Store, run: StoredRun, checkup: Checkup) -> None:
    """The rule's state and rows, with which a leader goes on; and the epochs."""
    with store.reading() as connection:
        now = records.find_run(connection) or run
        states = rows_of(connection, select(t.state))
        names = list(connection.execute(select(t.rows.c.worker)).scalars())
    if not states:
        checkup.found("The state of the rule is missing.", SERVING)
    for row in states:
        t.unseal(state_of(now), row.body, row.seal)
    for name in names:
        with store.reading() as connection:
            found = rows_of(connection, select(t.rows).where(t.rows.c.worker == name))
        for row in found:
            place = f"row of {row.worker}"
            _each(checkup, SERVING, partial(t.unseal, place, row.body, row.seal))
    checkup.looked_at["rows of the rule"] = len(names)
    checkup.looked_at["epochs"] = len(store.epochs())


def _chunks(store: Store) -> Iterator[list[Any]]:
    """All updates by seq, with the sizes of their bodies."""
    last = 0
    both = t.updates.outerjoin(t.payloads, t.payloads.c.seq == _U.seq)
    size = func.length(t.payloads.c.body).label("size")  # not the body itself
    while True:
        query = select(t.updates, size).select_from(both).where(_U.seq > last)
        with store.reading() as connection:
            found = list(connection.execute(query.order_by(_U.seq).limit(CHUNK)))
        if not found:
            return
        yield found
        last = found[-1].seq


def _trace(store: Store, run: StoredRun, checkup: Checkup) -> None:
    """Seals of all updates, their places in the fold, and bodies that must be there."""
    count, bodies = 0, []
    places: list[tuple[int, int]] = []  # order, version
    for rows in _chunks(store):
        for row in rows:
            count += 1
            _each(checkup, COUNTING, partial(t.unseal_update, row))
            if row.order is not None and row.order < run.folded:
                places.append((row.order, row.version))
            if row.size is not None:
                bodies.append((row.seq, SERVING if row.order is None else REPLAY))
            elif row.order is None:
                told = f"The body of update {row.seq} by {row.worker}, which waits, is missing."
                checkup.found(told, SERVING)
            elif run.keep_payloads:
                checkup.found(f"The body of update {row.seq} by {row.worker} is missing.", REPLAY)
    checkup.looked_at["updates"] = count
    _order(sorted(places), run, checkup)
    for seq, costs in bodies:
        _each(checkup, costs, partial(store.body, seq))
    checkup.looked_at["bodies"] = len(bodies)


def _order(places: list[tuple[int, int]], run: StoredRun, checkup: Checkup) -> None:
    found, wanted = [order for order, _ in places], range(run.trace_from, run.folded)
    if found != list(wanted):
        missing = sorted({*wanted} - {*found})
        told = (
            f"{missing[0]} and {len(missing) - 1} others are missing" if missing else "some twice"
        )
        span = f"{wanted.start} to {wanted.stop - 1}"
        checkup.found(f"The trace must hold the updates folded as {span}: {told}.", COUNTING)
    versions = [version for _, version in places if version != SET_ASIDE]
    if versions != sorted(versions) or (versions and versions[-1] > run.version):
        checkup.found("The versions of folded updates are not in order.", REPLAY)


def _orphans(store: Store, run: StoredRun, checkup: Checkup) -> None:
    query = select(func.count()).where(t.payloads.c.seq.not_in(select(_U.seq)))
    with store.reading() as connection:
        count = connection.execute(query).scalar() or 0
    if count:
        checkup.found(f"{count} bodies belong to no update.", REPLAY)


def _others(store: Store, run: StoredRun, checkup: Checkup) -> None:
    found = store.evaluations(10**9)
    checkup.looked_at["evaluations"] = len(found)
    checkup.looked_at["commands"] = len(commands(store))
    with store.reading() as connection:
        rows = rows_of(connection, select(t.activity))
    checkup.looked_at["rows of activity"] = len(rows)
    for row in rows:
        try:
            json.loads(row.body)
        except ValueError:
            checkup.found(f"The activity of {row.worker or 'the server'} is damaged.", ASIDE)


_LOOKS: tuple[tuple[str, Callable[[Store, StoredRun, Checkup], None]], ...] = (
    (PULLING, _models),
    (SERVING, _state),
    (COUNTING, _trace),
    (REPLAY, _orphans),
    (ASIDE, _others),
)
