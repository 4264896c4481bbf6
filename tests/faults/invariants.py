"""What must be true after every step, whatever went wrong.

- counted once: what was answered 202 or 200 is in the store exactly once, with the same bytes; what
  was refused is not; nothing is there that nobody sent;
- order: the places in the fold are 0, 1, 2, ..., every m of them make a version, none changes;
- identity: an ETag, and the address of a version, never name two different models; nobody is told
  "not modified" about another model; an accepted update was trained from a model of this run;
- finite: no published model has a number that is not finite;
- one server: never two on one store;
- threads: none dies of an exception;
- health: says "unwell" while steps wait and none is made, and while updates are refused because
  they cannot be stored; the server answers; it is well again when the faults are over;
- memory: queues stay within their limits;
- opens: a store that no disk damaged opens, and its replay is equal byte for byte.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from anarchic import wire
from anarchic.errors import AnarchicError
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from tests.faults.lookalikes import MOST_QUEUED
from tests.faults.reading import Reader, Rows
from tests.faults.server import Server, digest

if TYPE_CHECKING:
    from tests.faults.network import Answer, Request
    from tests.faults.workers import Worker
    from tests.faults.world import World

STUCK_S = 8.0  # without a version though one is due: then health must tell
HIDDEN_S = 3.0  # how long health may be behind with refusals by the store
SILENT_S = 6.0  # without an answer
HOPELESS_S = 15.0  # without a version, though nothing is wrong any more
SET_ASIDE = 0  # the version of an update that no version holds, since it would not be finite
MOST_TASKS = 60  # threads and requests of one server


class Violation(Exception):
    """An invariant is broken; the first word names it."""

    def __init__(self, name: str, told: str) -> None:
        super().__init__(name, told)
        self.name, self.told = name, told

    def __str__(self) -> str:
        return f"{self.name}: {self.told}"


@dataclass
class Entry:
    """One update, as its sender knows it."""

    digests: set[bytes] = field(default_factory=set)  # of the bytes that were sent
    acked: bytes | None = None  # the bytes that were answered 202 or 200
    sent: int = 0  # requests
    refused: int = 0  # of them, with 4xx


class Invariants:
    """Keeps what was promised, and compares it with what is."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.checks: Counter[str] = Counter()
        self.entries: dict[tuple[str, str], Entry] = {}
        self.newest_version = 0
        self._models: dict[str, str] = {}  # ETag -> digest
        self._places: dict[int, tuple[str, str]] = {}  # order -> update, as first seen
        self._found: Violation | None = None
        self._stuck_since = self._answered_at = self._well_at = 0.0
        self._stuck_version = -1
        self._refused_since: float | None = None
        self._refused_last = 0.0
        self._failed_starts = self._under_way = self._aside = 0
        self._restored_at = 0.0
        self.store = Reader(world.path)
        syncs = [event["sync_s"] for event in world.plan.events if event.kind == "slow_disk"]
        self._stuck_s = STUCK_S + 24 * max(syncs, default=0.0)  # a version takes many syncs

    # What is seen

    def violated(self, name: str, told: str) -> None:
        """Remember the first one: a task may have found it, and only the world may stop."""
        self._found = self._found or Violation(name, told)

    def watch(self, server: Server) -> None:
        """See every model that a server shows."""
        assert server.service is not None
        published = server.service.published
        post = published.post

        def seen(model: Any) -> None:
            self._identity(model.etag, model.body, "shows")
            _, snapshot, _ = wire.decode_snapshot(model.body)
            self.checks["finite"] += 1
            if not np.isfinite(snapshot.params).all():
                self.violated("finite", f"version {model.version} holds numbers that are not")
            self.newest_version = max(self.newest_version, model.version)
            post(model)

        published.post = seen  # type: ignore[method-assign]

    def _identity(self, name: str, body: bytes, does: str) -> None:
        self.checks["identity"] += 1
        known = self._models.setdefault(name, digest(body))
        if known != digest(body):
            self.violated("identity", f"the server {does} two different models as {name}")

    def sent(self, request: Request) -> None:
        """A push has reached the server."""
        self._under_way += 1
        request.sent_at = self._world.hub.now
        if request.key is not None:
            entry = self.entries.setdefault(request.key, Entry())
            entry.digests.add(_sha(request.body))
            entry.sent += 1

    def answered(self, server: Server, request: Request, answer: Answer) -> None:
        """The server has sent this."""
        if server is not self._world.server:
            return
        self._under_way -= 1
        self._answered_at = self._world.hub.now
        if answer.status == 500:
            self.violated("answer", f"500 to {request.method} {request.path}")
        if request.path.startswith("/v1/") and request.method == "GET" and answer.status == 200:
            name = answer.headers["etag"] if request.path == "/v1/model" else request.path
            self._identity(name, answer.body, "gives")
        if request.key is not None:
            self._pushed(request, answer)

    def _pushed(self, request: Request, answer: Answer) -> None:
        assert request.key is not None
        entry, now = self.entries[request.key], self._world.hub.now
        if answer.status in (200, 202):
            if request.sent_at <= self._restored_at:
                return  # it may have been stored in the file that was replaced
            entry.acked = _sha(request.body)
            self._refused_since = None
            if answer.status == 202 and self._restored_at and request.base:
                self._check_base(request)
        elif answer.status < 500:
            entry.refused += 1
        elif answer.code in ("store_full", "store_unavailable"):
            self._refused_since = self._refused_since or now
            self._refused_last = now

    def _check_base(self, request: Request) -> None:
        """The model that an accepted update was trained from is one of this run."""
        self.checks["base"] += 1
        server = self._world.server
        assert server is not None
        assert server.service is not None
        facts = wire.decode_update(request.body, server.service.layout, worker="x").update
        kept = server.service.published.newest
        if kept.version == facts.base_version and digest(kept.body) != request.base:
            self.violated(
                "identity",
                f"an update was accepted for version {facts.base_version}, and it was trained "
                "from another model with this number, from before the restore",
            )

    def unchanged(self, worker: Worker) -> None:
        """The worker was told 304."""
        self._identity(worker.etag or "", worker.model, "means by 304")

    def health_told(self, asked: float, answer: Answer | None) -> None:
        if answer is not None and answer.status == 200:
            self._well_at = asked

    def unanswered(self) -> None:
        """The server is gone: nobody will answer what it was asked."""
        self._under_way = 0

    def restored(self) -> None:
        """What was accepted after the backup is gone, as the operator knows."""
        self.store.forget()
        kept = self.store.read()
        assert kept is not None
        for key, entry in self.entries.items():
            if key not in kept.updates:
                entry.acked = None
                entry.sent += 1  # nobody can say what became of it
        self._places = {
            order: key for key, (_, order, _) in kept.updates.items() if order is not None
        }
        self._restored_at = self._world.hub.now

    def ended(self, server: Server) -> None:
        """A server ended by itself: it may refuse to start only while something is wrong."""
        if server.failure is None or not self._world.calm:
            self._failed_starts = 0
            return
        self._failed_starts += 1
        if self._failed_starts >= 3:
            raise Violation("opens", f"the server does not start any more: {server.failure}")

    # The looks

    def look(self) -> None:
        if self._found is not None:
            raise self._found
        world = self._world
        self._one_server()
        server = world.server
        for each in (server, *world.others):
            if each is not None and each.deaths:
                raise Violation("threads", f"one died: {each.deaths[0]}")
        if server is None or not server.ready or server.paused_until > world.hub.now:
            self._quiet()
            return
        if server.ready_since + SILENT_S > world.hub.now:
            self._answered_at = max(self._answered_at, server.ready_since)
        self._memory(server)
        rows = self.store.read()
        if rows is not None:
            self._counted_once(rows)
            self._order(rows)
            self._progress(rows, server)
        self._health(server)

    def _quiet(self) -> None:
        """Nobody serves: nothing is late."""
        now = self._world.hub.now
        self._stuck_since = self._answered_at = now
        self._refused_since = None

    def _one_server(self) -> None:
        self.checks["one server"] += 1
        serving = [s for s in (self._world.server, *self._world.others) if s and s.ready]
        inodes = [server.inode for server in serving]
        if len(set(inodes)) < len(inodes):
            paths = ", ".join(server.path.name for server in serving)
            raise Violation("one server", f"two servers serve one store: {paths}")

    def _memory(self, server: Server) -> None:
        self.checks["memory"] += 1
        service = server.service
        assert service is not None
        queued, waiting = service.pending.queued, len(service.collector._queue)
        if queued > MOST_QUEUED or waiting > self._under_way:
            told = f"{queued} updates wait to be folded, {waiting} to be stored"
            raise Violation("memory", f"{told}, of {self._under_way} requests")
        if len(server.tasks) > MOST_TASKS:
            raise Violation("memory", f"{len(server.tasks)} threads")

    def _counted_once(self, rows: Rows) -> None:
        self.checks["counted once"] += 1
        for key, entry in self.entries.items():
            row = rows.updates.get(key)
            if entry.acked is not None and (row is None or bytes(row[0]) != entry.acked):
                what = "is not in the store" if row is None else "has other bytes there"
                raise Violation("counted once", f"update {key} was accepted and {what}")
            if row is not None and entry.acked is None and entry.sent == entry.refused:
                raise Violation("counted once", f"update {key} was refused and is in the store")
        for key, (found, _, _) in rows.updates.items():
            if key not in self.entries or bytes(found) not in self.entries[key].digests:
                raise Violation("counted once", f"nobody sent {key} as it is in the store")

    def _order(self, rows: Rows) -> None:
        self.checks["order"] += 1
        placed = {row[1]: (key, row[2]) for key, row in rows.updates.items() if row[1] is not None}
        if sorted(placed) != list(range(rows.folded)) or len(placed) != rows.folded:
            raise Violation("order", f"{rows.folded} updates are folded as {sorted(placed)}")
        for order, (key, _) in placed.items():
            if self._places.setdefault(order, key) != key:
                raise Violation("order", f"place {order} went from {self._places[order]} to {key}")
        plan = self._world.plan
        versions = [placed[order][1] for order in range(rows.folded)]
        self._aside = versions.count(SET_ASIDE)
        versions = [version for version in versions if version != SET_ASIDE]
        made = Counter(versions)
        others = set(range(1, rows.version + 1)) - set(versions) - rows.rolled_back
        if versions != sorted(versions) or others or made.keys() & rows.rolled_back:
            raise Violation("order", f"versions of the folded updates: {versions}")
        most, least = max(made.values(), default=plan.m), min(made.values(), default=plan.m)
        if most > plan.m or (least < plan.m and plan.step_after_s is None):
            raise Violation("order", f"updates per version: {dict(made)}, m={plan.m}")

    def _progress(self, rows: Rows, server: Server) -> None:
        now = self._world.hub.now
        if rows.waiting < self._world.plan.m or rows.version != self._stuck_version:
            self._stuck_since, self._stuck_version = now, rows.version
        stuck = now - max(self._stuck_since, server.ready_since)
        self.checks["progress"] += 1
        if self._world.calm and stuck > HOPELESS_S:
            raise Violation(
                "progress",
                f"{rows.waiting} updates wait, and no version was made for {stuck:.0f} s though "
                "nothing is wrong any more",
            )
        if stuck > self._stuck_s and self._well_at > now - 3:
            raise Violation(
                "health",
                f"says ok; {rows.waiting} updates wait and no version was made for {stuck:.0f} s",
            )

    def _health(self, server: Server) -> None:
        self.checks["health"] += 1
        now = self._world.hub.now
        if now - self._answered_at > SILENT_S:
            raise Violation("health", f"no answer for {now - self._answered_at:.0f} s")
        since = self._refused_since
        if since is not None and since + HIDDEN_S < self._well_at < self._refused_last:
            raise Violation(
                "health", f"says ok; updates are refused for {now - since:.0f} s by the store"
            )

    def all_well(self) -> bool:
        """Whether the server is up and well, and no step is due."""
        server, rows = self._world.server, self.store.rows
        up = server is not None and server.ready and rows is not None
        return up and rows.waiting < self._world.plan.m and self._well_at > self._world.hub.now - 3

    def at_the_end(self) -> None:
        """All faults are over for a while: everything must be well."""
        self.look()
        server = self._world.server
        if server is None or not server.ready:
            raise Violation("opens", "no server is up long after the last fault")
        self.checks["well again"] += 1
        if self._well_at < self._world.hub.now - 4 and not self._aside:
            raise Violation("health", "says unwell though nothing is wrong any more")
        self._replays(server)

    def _replays(self, server: Server) -> None:
        """Stop the server and fold everything again."""
        world = self._world
        server.stop()
        world.hub.run_until(world.hub.now + 40)
        self.store.forget()
        rows = self.store.read()
        if rows is None:
            raise Violation("opens", "the store is locked though its server has stopped")
        self._counted_once(rows)
        self._order(rows)
        if rows.waiting >= world.plan.m:
            raise Violation("progress", f"{rows.waiting} updates wait after an orderly stop")
        if not world.plan.keep_payloads:
            return
        self.checks["replay"] += 1
        found: list[Any] = []

        def fold() -> None:
            try:
                store = open_store(world.path)
                found.append(replay(store))
                store.close()
            except AnarchicError as error:
                found.append(error)

        world.hub.spawn(world.hub.outside, fold, "replay")
        world.hub.run_until(world.hub.now + 10)
        if not found or isinstance(found[0], AnarchicError) or not found[0].equal:
            raise Violation("replay", f"is not equal: {found[0] if found else 'did not end'}")


def _sha(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
