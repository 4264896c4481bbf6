"""Who takes part: counted from the trace, every few seconds, into the table ``activity``.

The trace says who sent what and what became of it, so the leader counts its new rows and stores the
result together with the place that it has reached: nothing is counted twice, nothing is left out,
and a server that was killed goes on where the table stands. What the trace does not hold is kept
beside it. The guard's weights are written with the version, in the same transaction. Losses and
refusals are in memory until the next write: those of the last seconds before a kill are lost.

The rows of the table: that of no worker (``HEAD``) is the run's own; ``NAME`` is a worker's tally;
``door NAME`` counts its refused requests; ``clip SEQ`` is the weight of an update that was clipped
and is not counted yet. No worker's name has a space.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from sqlalchemy import Connection, func, select

from anarchic.core.influence import LengthsOf, lengths_of
from anarchic.errors import StoreCorrupt
from anarchic.server import records
from anarchic.server import tables as t
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.commands import read_all, rules_after, takes_back
from anarchic.server.records import CLIPPED, FoldedUpdate, read_json
from anarchic.server.runs import stored_rules
from anarchic.server.settings import served_rule
from anarchic.server.store import Store
from anarchic.server.tally import MOST, Lately, Row, Tallies, Tally

HEAD = ""  # no worker's name
DOOR = "door "  # before a name
CHUNK = 2000  # rows counted in one transaction, so that a long trace never holds up the writer
START_CHUNKS = 10  # counted before a server starts; if there are more, they are counted later
ALIVE_S = 30.0  # how often a leader says that it is there, when nothing happens
MOST_LOSSES = 100_000  # that wait to be counted
Notes = Callable[[], list[str]]  # what an operator should know
_A, _U = t.activity.c, t.updates.c
_ROW = [_U[name] for name in Row._fields]


@final
@dataclass(slots=True)
class Refusals:
    """Refused requests of a worker."""

    codes: dict[str, int] = field(default_factory=dict)
    seen_s: float = 0.0

    def add(self, codes: Mapping[str, int], seen_s: float) -> None:
        for code, count in codes.items():
            self.codes[code] = self.codes.get(code, 0) + count
        self.seen_s = max(self.seen_s, seen_s)


@final
@dataclass(slots=True)
class Head:
    """What the table says of the run as a whole."""

    tallies: Tallies = field(default_factory=Tallies)
    refused: dict[str, int] = field(default_factory=dict)  # requests, by code
    duplicates: int = 0
    leader: dict[str, Any] | None = None  # host, pid, epoch and when it last wrote

    def to_json(self) -> str:
        tallies = self.tallies
        found = {"counted": tallies.counted, "rest": tallies.rest.to_json()}
        found |= {"lately": list(tallies.lately.known.items()), "leader": self.leader}
        return json.dumps({**found, "refused": self.refused, "duplicates": self.duplicates})


def read_head(body: str | None) -> Head:
    """The run's own row, without the workers' tallies."""
    if body is None:
        return Head()
    found = read_json(body, "activity")
    with _whole():
        tallies = Tallies()
        tallies.counted, tallies.rest = int(found["counted"]), Tally.from_json(found["rest"])
        tallies.lately = Lately((worker, float(length)) for worker, length in found["lately"])
        return Head(tallies, dict(found["refused"]), int(found["duplicates"]), found["leader"])


@contextmanager
def _whole() -> Iterator[None]:
    """Turn what only a damaged row can raise into an error of the store."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupt(
            f"The stored activity is damaged ({error!r}). Empty the table `activity`: what the "
            "trace holds is counted again."
        ) from error


def read_activity(connection: Connection) -> tuple[Head, dict[str, Refusals]]:
    """Everything that the table holds, and who was refused."""
    bodies = {row.worker: row.body for row in connection.execute(select(t.activity))}
    head, doors = read_head(bodies.pop(HEAD, None)), {}
    with _whole():
        for name, body in bodies.items():
            if name.startswith(DOOR):
                found = read_json(body, "activity")
                doors[name.removeprefix(DOOR)] = Refusals(dict(found["codes"]), found["seen_s"])
            elif not name.startswith(CLIPPED):
                head.tallies.workers[name] = Tally.from_json(read_json(body, "activity"))
    return head, doors


class Counted(NamedTuple):
    """Rows of the trace that were counted, and those of them that were clipped."""

    seqs: Sequence[int]
    clipped: Sequence[int]  # seqs


def count_next(connection: Connection, tallies: Tallies, losses: Mapping[int, float]) -> Counted:
    """Count the next rows of the trace, ``CHUNK`` of them at most."""
    query = select(*_ROW).where(_U.order >= tallies.counted).order_by(_U.order).limit(CHUNK)
    found = connection.execute(query).all()
    if not found:
        return Counted((), ())
    weights, rules, clipped = _weights(connection), _Rules(connection), []
    for values in found:
        row = Row(*values)
        weight, came, folded = weights.get(row.seq, 1.0), 0.0, 0.0
        if row.version:  # not set aside
            late = max(0, row.version - 1 - row.base_version)
            lengths = rules.lengths(row.version)
            came, folded = lengths(row.local_lr, row.local_steps, late, row.norm, weight)
        if row.seq in weights:
            clipped.append(row.seq)
        loss = losses.get(row.seq)
        gone = not row.version and takes_back(rules.known, row.worker, row.base_version)
        tallies.fold(row, came, folded, clipped=weight < 1, loss=loss, rolled_back=gone)
    return Counted([row.seq for row in found], clipped)


@final
class _Rules:
    """The rule that made each version: operators may have changed its settings on the way."""

    def __init__(self, connection: Connection) -> None:
        run = records.find_run(connection)
        assert run is not None, "something was folded"
        self._begun, self.known = stored_rules(run), read_all(connection)
        made = (c.version for c in self.known if c.kind == "set")
        self._changes = [version for version in made if version is not None]
        self._made: dict[int, LengthsOf] = {}

    def lengths(self, version: int) -> LengthsOf:
        """See ``lengths_of``; commands take effect after the version that they name."""
        passed = sum(change < version for change in self._changes) if self._changes else 0
        if passed not in self._made:
            applied = [c for c in self.known if c.version is not None and c.version < version]
            self._made[passed] = lengths_of(served_rule(rules_after(self._begun, applied)))
        return self._made[passed]


def _weights(connection: Connection) -> dict[int, float]:
    """Of updates that the guard clipped and that are not counted yet, by seq."""
    query = select(t.activity).where(_A.worker.like(f"{CLIPPED}%"))
    found = connection.execute(query).all()
    with _whole():
        return {int(row.worker.removeprefix(CLIPPED)): float(row.body) for row in found}


@final
class Activity:
    """Counts what the workers of a run do; ``tick`` writes it to the store."""

    def __init__(self, store: Store, clock: Clock = SYSTEM, notes: Notes = list) -> None:
        self._store, self._clock, self._notes = store, clock, notes
        self._head, self._lock = Head(), threading.Lock()
        self._losses: dict[int, float] = {}  # of updates that are not counted yet, by seq
        self._doors: dict[str, Refusals] = {}  # refusals since the last write
        self._duplicates = 0  # since the last write
        self._at_start: Counter[str] = Counter()  # totals of the run when this server started
        self._stored: Counter[str] = Counter()  # totals of the run when the store was last read
        self._mine: Counter[str] = Counter()  # since this server started
        self._codes_at_start: Counter[str] = Counter()
        self._my_codes: Counter[str] = Counter()
        self._written_s = 0.0
        self._seen: Hashable = None  # the store, when all of it was counted

    def start(self) -> None:
        """Read what the run came to before this server folds anything."""
        with self._store.reading() as connection:
            head, _ = read_activity(connection)
            for _ in range(START_CHUNKS):  # what a server that was killed did not write
                if len(count_next(connection, head.tallies, {}).seqs) < CHUNK:
                    break
            self._at_start = self._stored = _totals(connection, head)
        self._codes_at_start = Counter(head.refused)

    def received(self, outcome: str) -> None:
        """An update was accepted, or known already."""
        with self._lock:
            self._mine[outcome] += 1
            self._duplicates += outcome == "duplicate"

    def refused(self, code: str, worker: str | None) -> None:
        """A request was refused; ``worker`` is who sent it, if that is known."""
        with self._lock:
            self._mine["refused"] += 1
            self._my_codes[code] += 1
            name = worker or ""
            if name not in self._doors and len(self._doors) > MOST:
                name = ""
            door = self._doors.setdefault(name, Refusals())
            door.add({code: 1}, self._clock.time())

    def note(self, folded: Sequence[FoldedUpdate]) -> None:
        """Keep the losses of updates that a version is about to hold: once it is durable, they may
        be counted at any moment."""
        told = {u.seq: u.loss for u in folded if u.loss is not None}
        with self._lock:
            self._losses |= told
            while len(self._losses) > MOST_LOSSES:  # of versions that another server made
                del self._losses[next(iter(self._losses))]

    def published(self, folded: Sequence[FoldedUpdate], count: int, aside: int = 0) -> None:
        """A version holds these updates; ``count`` has those too that the rule passed over."""
        with self._lock:
            self._mine["folded"] += count
            self._mine["set_aside"] += aside
            self._mine["clipped"] += sum(u.weight < 1 for u in folded)

    def totals(self) -> dict[str, int]:
        """Of the run: what this server knows, or read in the store, whichever is more.

        Both are at most what is true, and what one server alone knows is exact.
        """
        names = ("accepted", "duplicate", "refused", "folded", "clipped", "set_aside")
        known = self._at_start + self._mine
        found = {name: max(known[name], self._stored[name]) for name in names}
        # Another server may have accepted what this one has folded since the store was read.
        found["accepted"] = max(found["accepted"], found["folded"] + found["set_aside"])
        return found

    def codes(self) -> dict[str, int]:
        """Refused requests of the run, by code."""
        known, stored = self._codes_at_start + self._my_codes, self._head.refused
        return {code: max(known[code], stored.get(code, 0)) for code in {*known, *stored}}

    def tick(self, *, leads: bool, epoch: int | None = None) -> bool:
        """Write what is new; whether there is more to count. Only the leader counts the trace."""
        due, seen = leads and self._clock.time() - self._written_s >= ALIVE_S, self._store.mark()
        if seen is not None and seen == self._seen and not (due or self._doors or self._duplicates):
            return False
        with self._store.reading() as connection:
            folded = connection.execute(select(t.run.c.folded)).scalar() or 0
            self._head_of(connection)
            self._stored = _totals(connection, self._head)
        behind = leads and folded > self._head.tallies.counted
        self._seen = None if behind else seen
        if not (behind or due or self._doors or self._duplicates):
            return False
        with self._lock:
            doors, self._doors = self._doors, {}
            duplicates, self._duplicates = self._duplicates, 0
            losses = dict(self._losses)
        try:
            counted = self._write(doors, duplicates, losses, leads=leads, epoch=epoch)
        except BaseException:
            self._head = Head()  # it may be ahead of the store: read it again
            self._put_back(doors, duplicates)
            raise
        with self._lock:
            for seq in counted:
                self._losses.pop(seq, None)
        return len(counted) == CHUNK

    def _put_back(self, doors: Mapping[str, Refusals], duplicates: int) -> None:
        with self._lock:
            self._duplicates += duplicates
            for name, door in doors.items():
                self._doors.setdefault(name, Refusals()).add(door.codes, door.seen_s)

    def _head_of(self, connection: Connection, *, lock: bool = False) -> None:
        """Read the run's own row, and everything else if another server has counted since."""
        query = select(_A.body).where(_A.worker == HEAD)
        body = connection.execute(query.with_for_update() if lock else query).scalar()
        found = read_head(body)
        if found.tallies.counted != self._head.tallies.counted:
            found, _ = read_activity(connection)
        else:
            found.tallies = self._head.tallies
        self._head = found

    def _write(
        self, doors: Mapping[str, Refusals], duplicates: int, losses: Mapping[int, float], *,
        leads: bool, epoch: int | None,
    ) -> Sequence[int]:  # fmt: skip
        insert, now = self._store.insert, self._clock.time()
        with self._store.writing() as connection:
            first = {"worker": HEAD, "body": Head().to_json()}
            connection.execute(insert(t.activity).on_conflict_do_nothing(), first)
            self._head_of(connection, lock=True)
            head, counted = self._head, Counted((), ())
            rows: list[dict[str, Any]] = []
            if leads:
                counted = count_next(connection, head.tallies, losses)
                rows += self._tallied(connection, counted.clipped)
                self._written_s = now
            if epoch is not None:
                where = {"host": socket.gethostname(), "pid": os.getpid(), "epoch": epoch}
                head.leader = {**where, "seen_s": now, "notes": self._notes()}
            head.duplicates += duplicates
            for door in doors.values():
                for code, count in door.codes.items():
                    head.refused[code] = head.refused.get(code, 0) + count
            rows += _merged(connection, doors)
            rows.append({"worker": HEAD, "body": head.to_json()})
            records.upsert(connection, insert, t.activity, rows)
        self._head.tallies.changed.clear()
        self._head.tallies.dropped.clear()
        return counted.seqs

    def _tallied(self, connection: Connection, clipped: Iterable[int]) -> list[dict[str, Any]]:
        """The rows of workers that have changed; those that are no longer needed are deleted."""
        tallies = self._head.tallies
        gone = [name for name in tallies.dropped if name not in tallies.workers]
        gone += [f"{CLIPPED}{seq}" for seq in clipped]
        records.delete_each(connection, _A.worker, gone)
        return [
            {"worker": name, "body": json.dumps(tallies.workers[name].to_json())}
            for name in sorted(tallies.changed)
        ]

    def leave(self) -> None:
        """Say that this server leads no longer."""
        if self._head.leader is None:
            return
        with self._store.writing() as connection:
            self._head_of(connection, lock=True)
            self._head.leader = None
            row = {"worker": HEAD, "body": self._head.to_json()}
            records.upsert(connection, self._store.insert, t.activity, [row])


def _merged(connection: Connection, doors: Mapping[str, Refusals]) -> list[dict[str, Any]]:
    """The rows of those who were refused, with what was counted before, by whichever server."""
    if not doors:
        return []
    names = [DOOR, *(f"{DOOR}{name}" for name in doors)]
    found = connection.execute(select(t.activity).where(_A.worker.in_(names))).all()
    before = {row.worker: read_json(row.body, "activity") for row in found}
    room = 2 * MOST - (connection.execute(_DOORS).scalar() or 0)
    merged: dict[str, Refusals] = {}
    for name, door in doors.items():
        key = f"{DOOR}{name}"
        if key not in before and name:
            room -= 1
            key = key if room > 0 else DOOR  # strangers cannot fill the table
        if key not in merged:
            then = before.get(key, {"codes": {}, "seen_s": 0.0})
            merged[key] = Refusals(dict(then["codes"]), then["seen_s"])
        merged[key].add(door.codes, door.seen_s)
    return [
        {"worker": key, "body": json.dumps({"codes": door.codes, "seen_s": door.seen_s})}
        for key, door in sorted(merged.items())
    ]


_DOORS = select(func.count()).select_from(t.activity).where(_A.worker.like(f"{DOOR}%"))


def _totals(connection: Connection, head: Head) -> Counter[str]:
    """Of the run, by the store: what is accepted is in the trace, and so is what became of it."""
    folded = connection.execute(select(t.run.c.folded)).scalar() or 0
    waiting = select(func.count()).select_from(t.updates).where(_U.order.is_(None))
    tallies = [*head.tallies.workers.values(), head.tallies.rest]
    aside = sum(tally.set_aside for tally in tallies)
    return Counter(
        accepted=folded + (connection.execute(waiting).scalar() or 0),
        duplicate=head.duplicates,
        refused=sum(head.refused.values()),
        folded=head.tallies.counted - aside,
        clipped=sum(tally.clipped for tally in tallies),
        set_aside=aside,
    )


def settle(store: Store) -> int:
    """Count everything that was folded, as before the trace is compacted; the rows counted."""
    activity = Activity(store)
    while activity.tick(leads=True):
        pass
    return activity._head.tallies.counted
