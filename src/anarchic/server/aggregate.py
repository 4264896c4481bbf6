"""The aggregating half of the server: folds accepted updates and publishes versions.

It runs in a thread of its own and waits for nobody but the store. Updates are folded as they come,
so that the memory it needs is the rule's; a version is published, that is made durable together
with the order of folding, before anybody sees it. While more updates wait than a step needs, it
goes on to the next step first: versions that nobody could have pulled need not be written.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from anarchic import wire
from anarchic.core.rule import Rule
from anarchic.core.types import Layout
from anarchic.errors import Deposed, StoreCorrupt, StoreError, UpdateRefused
from anarchic.server.board import Board
from anarchic.server.log import Log
from anarchic.server.state import (
    changed_rows,
    decode_state,
    encode_model,
    encode_state,
    mark_stored,
)
from anarchic.server.store import Publication, Store
from anarchic.wire import Decoded

MOST_QUEUED = 32  # updates held in memory; more are read back from the store when their turn comes
QUEUED_BYTES = 1 << 28  # and fewer of a large model, but two
READ_AT_ONCE = 64  # rows of updates that wait, from a store of our own
MOST_UNPUBLISHED_S = 0.25  # steps may pass unpublished for this long while updates are waiting
PATIENCE_S = 0.5  # how long a follower waits before it asks again whether it may lead
RETRY_S = 0.5


class Aggregator:
    """Leads, or follows the one that does."""

    def __init__(
        self,
        store: Store,
        rule: Rule[Any],
        layout: Layout,
        board: Board,
        log: Log,
        *,
        step_after_s: float | None = None,
    ) -> None:
        self._store, self._rule, self._layout = store, rule, layout
        self._board, self._log, self._step_after_s = board, log, step_after_s
        self._queue: deque[tuple[int, Decoded]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._unread: int | None = 0  # the store may hold updates from this seq on, unqueued
        self._most_queued = max(2, min(MOST_QUEUED, QUEUED_BYTES // (4 * layout.dim)))
        self._taken: set[int] = set()  # seqs in the queue or folded since the last publication
        self._folded: list[tuple[int, int, str]] = []  # (seq, version, worker) since then
        self._losses: list[float] = []  # that came with them
        self._revoked: frozenset[str] = frozenset()  # workers
        self._suspects: set[str] = set()  # those of them that may have rows
        self._dropped: list[tuple[int, str]] = []  # (version, worker) since the last publication
        self._oldest_s: float | None = None  # when the oldest update of the buffer was folded
        self._published_s = 0.0
        self._asked_s = float("-inf")  # when it last asked whether it may lead
        self._epoch: int | None = None
        self._state: Any = None
        self._thread = threading.Thread(target=self._run, name="aggregate", daemon=True)
        # Held while updates become durable and are offered, and while the store is searched for
        # more: whoever finds an update there knows that it will not be offered any more.
        self.handover = threading.Lock()
        self.on_folded: Callable[[Counter[str]], None] = lambda workers: None
        self.on_elsewhere: Callable[[Counter[str]], None] = lambda waiting: None
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Fold what makes whole steps, publish it, and resign."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)

    @property
    def m(self) -> int:
        return self._rule.m

    def scale(self, local_lr: float, local_steps: int) -> float:
        return self._rule.scale(local_lr, local_steps)

    @property
    def leads(self) -> bool:
        return self._epoch is not None

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def offer(self, updates: Sequence[tuple[int, Decoded]]) -> None:
        """Hand over updates that have just become durable."""
        with self._wake:
            for seq, decoded in updates:
                if self.leads and len(self._queue) < self._most_queued:
                    if seq not in self._taken:
                        self._taken.add(seq)
                        self._queue.append((seq, decoded))
                else:
                    self._leave(seq)
            self._wake.notify()

    def revoke(self, workers: Iterable[str]) -> None:
        """Say who is not trusted any more: their rows are dropped before the next round."""
        with self._wake:
            self._revoked = frozenset(workers)
            self._suspects = set(self._revoked)

    def look(self) -> None:
        """The store may hold updates that were not offered."""
        with self._wake:
            self._leave(0)
            self._wake.notify()

    def _leave(self, seq: int) -> None:
        """Let the updates from ``seq`` on be read back later."""
        self._unread = seq if self._unread is None else min(seq, self._unread)

    def _run(self) -> None:
        while not self._stopping:
            try:
                if self._epoch is None:
                    self._follow()
                else:
                    self._lead()
            except Deposed as error:
                self._log("deposed", reason=str(error))
                self._step_down()
            except StoreCorrupt as error:
                self.failure = error
                self._log("store_corrupt", reason=str(error))
                self._step_down()
                return
            except StoreError as error:
                self.failure = error
                self._log("store_error", reason=str(error))
                self._step_down()
                time.sleep(RETRY_S)
            except Exception as error:  # a bug: updates stay durable, the server says it is unwell
                self.failure = error
                self._log("aggregator_failed", reason=repr(error), trace=traceback.format_exc())
                self._step_down()  # another replica may do better
                return
        if self._epoch is not None:
            self._finish()

    def _follow(self) -> None:
        """Show what the leader publishes, and take its place when it is gone."""
        self._catch_up()
        epoch = self._ask_to_lead()
        if epoch is None:
            self._store.wait(PATIENCE_S)
            return
        self._recover()
        self._epoch = epoch
        self.failure = None
        self._log("leads", epoch=epoch, version=self._state.version)

    def _ask_to_lead(self) -> int | None:
        """Not each time that somebody pushes: asking takes a connection."""
        if time.monotonic() - self._asked_s < PATIENCE_S:
            return None
        self._asked_s = time.monotonic()
        return self._store.lead()

    def _catch_up(self) -> None:
        run = self._store.run()
        with self.handover:
            self._waiting()  # first: whoever sees the version may push again
        if run is not None and not (
            self._board.has_one and run.version <= self._board.newest.version
        ):
            body = self._store.model(run.version)
            if body is not None:
                self._board.post(run.version, body)

    def _waiting(self) -> list[tuple[int, str]]:
        """What waits for a step, wherever it was accepted: whoever pushes to several replicas
        has one share all the same. To be called with ``handover``."""
        waiting = self._store.waiting()
        self.on_elsewhere(Counter(worker for _, worker in waiting))
        return waiting

    def _recover(self) -> None:
        """Go back to the newest published version; what was folded since then is folded again."""
        run = self._store.run()
        body = None if run is None else self._store.model(run.version)
        if run is None or body is None:
            raise StoreCorrupt("The store has no model of its newest version: restore it.")
        _, snapshot, _ = wire.decode_snapshot(body)
        self._state = decode_state(self._rule, snapshot, *self._store.state())
        with self._wake:
            self._queue.clear()
            self._taken.clear()
            self._folded.clear()
            self._losses.clear()
            self._dropped.clear()
            self._suspects = set(self._revoked)
            self._leave(0)
        self._oldest_s = None
        with self.handover:
            self._waiting()
        self._board.post(run.version, body)

    def _lead(self) -> None:
        queued = self._next()
        if queued is not None:
            self._fold(*queued)
        elif self._overdue():
            self._state = self._rule.flush(self._state)
            self._publish()

    def _next(self) -> tuple[int, Decoded] | None:
        """The next update to be folded; waits a little where there is none."""
        with self._wake:
            if self._queue:
                return self._queue.popleft()
            first, self._unread = self._unread, None
        if first is not None:
            self._read_back(first)
        with self._wake:
            if self._queue:
                return self._queue.popleft()
            if not self._stopping and self._unread is None:
                self._wake.wait(self._nap_s())
        if self._store.shared:
            if not self._store.still_leads():
                raise Deposed("The connection that held the lead is gone.")
            self.look()
        return None

    def _read_back(self, first: int) -> None:
        """Fetch updates that other processes accepted, or that found the queue full."""
        with self.handover, self._wake:
            if self._store.shared:  # whose slow replicas commit late, below what was read
                waiting = self._waiting()
            else:
                waiting = self._store.waiting(first, READ_AT_ONCE)
                if len(waiting) == READ_AT_ONCE:
                    self._leave(waiting[-1][0] + 1)
            found = [(s, w) for s, w in waiting if s not in self._taken]
            room = self._most_queued - len(self._queue)
            if len(found) > room:
                self._leave(found[room][0])
            self._taken.update(seq for seq, _ in found[:room])
        names = frozenset(self._state.extras)
        read = []
        for seq, worker in found[:room]:
            body = self._store.body(seq)
            if body is None:
                raise StoreCorrupt(f"Update {seq} was accepted, but its body is gone.")
            decoded = wire.decode_update(body, self._layout, extras=names, worker=worker)
            read.append((seq, decoded))
        with self._wake:  # before those that were offered meanwhile, if they came before them
            self._queue = deque(sorted([*read, *self._queue], key=lambda queued: queued[0]))

    def _fold(self, seq: int, decoded: Decoded) -> None:
        self._drop_suspects()
        before, update = self._state.version, decoded.update
        try:
            self._state = self._rule.receive(self._state, update)
        except UpdateRefused as error:  # it was checked when it was accepted; go on all the same
            self._log("refused_late", worker=update.worker, reason=str(error))
        else:
            if decoded.loss is not None:
                self._losses.append(decoded.loss)
        if update.worker in self._revoked:  # what it sent before weighs in one step and no more
            with self._wake:
                self._suspects.add(update.worker)
        self._folded.append((seq, before + 1, update.worker))
        self._oldest_s = self._oldest_s or time.monotonic()
        if self._state.version > before and not self._in_a_hurry():
            self._publish()

    def _drop_suspects(self) -> None:
        """Only where a round begins: that is a place which a replay finds again."""
        if not self._suspects or self._rule.remaining(self._state) < self._rule.m:
            return
        with self._wake:
            suspects, self._suspects = self._suspects, set()
        version = self._state.version
        self._dropped += [
            (version, w) for w in sorted(suspects) if self._rule.forget(self._state, w)
        ]

    def _in_a_hurry(self) -> bool:
        """Whether the next step is waiting already, and the last publication was just now."""
        enough = len(self._queue) >= self._rule.remaining(self._state)
        return enough and time.monotonic() - self._published_s < MOST_UNPUBLISHED_S

    def _overdue(self) -> bool:
        if self._step_after_s is None or self._oldest_s is None or not self._folded:
            return False
        waiting = self._rule.remaining(self._state) < self._rule.m
        return waiting and time.monotonic() - self._oldest_s >= self._step_after_s

    def _nap_s(self) -> float:
        if self._store.shared:
            return 0.05
        if self._step_after_s is not None:
            return min(0.05, self._step_after_s)
        return 1.0

    def _publish(self) -> None:
        """Durable first, visible then. While the store is out of order, it is tried again."""
        assert self._epoch is not None
        body = encode_model(self._layout, self._state, self._board.run, _mean(self._losses))
        changed, removed = changed_rows(self._rule, self._state)
        publication = Publication(
            epoch=self._epoch,
            previous=self._board.newest.version,
            version=self._state.version,
            folded=[(seq, version) for seq, version, _ in self._folded],
            model=body,
            state=encode_state(self._rule, self._state),
            rows=changed,
            forgotten=removed,
            revoked=[*self._dropped],
        )
        self._insist(lambda: self._store.publish(publication))
        mark_stored(self._rule, self._state)
        self._taken.difference_update(seq for seq, _, _ in self._folded)
        folded = Counter(worker for _, _, worker in self._folded)
        self._folded.clear()
        self._losses.clear()
        self._dropped.clear()
        self._oldest_s, self._published_s = None, time.monotonic()
        self.on_folded(folded)  # first: whoever sees the version may push again
        self._board.post(self._state.version, body)

    def _insist(self, write: Callable[[], None]) -> None:
        while True:
            try:
                write()
            except (Deposed, StoreCorrupt):
                raise
            except StoreError as error:
                self.failure = error
                self._log("cannot_publish", reason=str(error))
                if self._stopping:
                    raise
                time.sleep(RETRY_S)
            else:
                self.failure = None
                return

    def _step_down(self) -> None:
        self._epoch = None
        with suppress(StoreError):
            self._store.resign()

    def _finish(self) -> None:
        """On shutdown: what makes whole steps is folded; the rest stays, durable, for next time."""
        try:
            while (queued := self._next()) is not None:
                self._fold(*queued)
        except StoreError as error:
            self._log("store_error", reason=str(error))
        self._store.resign()


def _mean(losses: Sequence[float]) -> float | None:
    """Infinity where they are too large, where ``fmean`` would raise what any worker can cause."""
    return sum(losses) / len(losses) if losses else None
