"""Updates that were accepted and are in no version yet: all in the store, the oldest in memory."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence

from anarchic import wire
from anarchic.core.types import Layout
from anarchic.errors import StoreCorrupt
from anarchic.server.limits import Shares
from anarchic.server.records import NewUpdate, Receipt
from anarchic.server.store import Store
from anarchic.wire import Decoded

# Updates held in memory; more are read back from the store when their turn comes. That costs as
# much as accepting them: a server that falls behind by more than this stays behind.
MOST_QUEUED = 512
QUEUED_BYTES = 1 << 27  # at most this many bytes of them, but always two updates
READ_AT_ONCE = 64  # rows of waiting updates read at once, from a store that is not shared


class Pending:
    """Makes updates durable, and gives them out once each, in order, to whoever folds them."""

    def __init__(
        self, store: Store, layout: Layout, shares: Shares,
        woken: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._store, self._layout, self._shares = store, layout, shares
        self._most_queued = 2  # until ``begin`` knows how large they are
        self._queue: deque[tuple[int, Decoded]] = deque()
        self._taken: set[int] = set()  # seqs given out or queued, and in no version yet
        self._unread: int | None = 0  # the store may hold updates from this seq on, not queued
        self.found = 0  # updates that were read back
        self._extras: frozenset[str] = frozenset()
        self._queueing = self._stopping = False
        self._wake = threading.Condition()
        self._woken = woken  # called when something has come
        # Held while updates become durable and are queued, and while the store is searched for
        # more: an update that the search finds is never queued a second time.
        self._storing = threading.Lock()

    @property
    def queued(self) -> int:
        """Updates that wait in memory."""
        return len(self._queue)

    @property
    def waits(self) -> bool:
        """Whether something is queued, or to be looked for in the store."""
        return bool(self._queue) or self._unread is not None

    @property
    def count(self) -> int:
        """Updates that wait, wherever they were accepted."""
        return self._shares.total

    def reserve(self, worker: str) -> None:
        """Count an update of this worker against its share; ``accept`` must follow."""
        self._shares.take(worker)

    def accept(self, updates: Sequence[tuple[NewUpdate, Decoded]]) -> list[Receipt]:
        """Make updates durable in one transaction, and queue those that are new."""
        with self._storing:
            try:
                receipts = self._store.append([new for new, _ in updates])
            except BaseException:
                for new, _ in updates:
                    self._shares.sent(new.worker, accepted=False)
                self.search()  # the store may hold them all the same
                self._woken()
                raise
            with self._wake:
                for receipt, (new, decoded) in zip(receipts, updates, strict=True):
                    is_new = receipt.outcome == "accepted"
                    self._shares.sent(new.worker, accepted=is_new)
                    if is_new:
                        self._queue_new(receipt.seq, decoded)
                self._wake.notify()
            self._woken()
        return receipts

    def _queue_new(self, seq: int, decoded: Decoded) -> None:
        if not self._queueing or len(self._queue) >= self._most_queued:
            self._read_later(seq)
        elif seq not in self._taken:
            self._taken.add(seq)
            self._queue.append((seq, decoded))

    def search(self) -> None:
        """Search the store before waiting again: it may hold updates that were not queued."""
        with self._wake:
            self._read_later(0)
            self._wake.notify()

    def _read_later(self, seq: int) -> None:
        self._unread = seq if self._unread is None else min(seq, self._unread)

    def begin(self, extras: frozenset[str]) -> None:
        """Give out everything that waits, from the oldest on; updates may carry ``extras``."""
        fit = QUEUED_BYTES // wire.most_body_bytes(self._layout, extras)
        with self._wake:
            self._extras, self._most_queued = extras, max(2, min(MOST_QUEUED, fit))
            self._queue.clear()
            self._taken.clear()
            self._read_later(0)
        self.recount()

    def pause(self) -> None:
        """Keep no more updates in memory: another server folds them."""
        with self._wake:
            self._queueing = False

    def stop(self) -> None:
        """Let ``next`` wait no longer."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def recount(self) -> None:
        """Count what waits in the store: one share per worker, however many servers it asks."""
        with self._storing:
            self._count_all()

    def _count_all(self) -> list[tuple[int, str]]:
        waiting = self._store.waiting()
        self._shares.reset(Counter(worker for _, worker in waiting))
        return waiting

    def next(self, wait_s: float) -> tuple[int, Decoded] | None:
        """The next update and its seq; None where there is none after waiting a little."""
        with self._wake:
            self._queueing = True  # only now: what was accepted before is read back first
            if self._queue:
                return self._queue.popleft()
            first, self._unread = self._unread, None
        if first is not None:
            self._read_back(first)
        with self._wake:
            if self._queue:
                return self._queue.popleft()
            if not self._stopping and self._unread is None:
                self._wake.wait(wait_s)
        return None

    def _read_back(self, first: int) -> None:
        """Read updates that other servers accepted, or that found the queue full."""
        with self._storing, self._wake:
            if self._store.shared:  # other servers may commit late, below what was read
                waiting = self._count_all()
            else:
                waiting = self._store.waiting(first, READ_AT_ONCE)
                if len(waiting) == READ_AT_ONCE:
                    self._read_later(waiting[-1][0] + 1)
            found = [(seq, worker) for seq, worker in waiting if seq not in self._taken]
            room = self._most_queued - len(self._queue)
            if len(found) > room:
                self._read_later(found[room][0])
            self._taken.update(seq for seq, _ in found[:room])
            self.found += len(found[:room])
        read = [(seq, self.read(seq, worker)) for seq, worker in found[:room]]
        with self._wake:  # before those that were queued meanwhile, if they have lower numbers
            self._queue = deque(sorted([*read, *self._queue], key=lambda queued: queued[0]))

    def read(self, seq: int, worker: str) -> Decoded:
        """An update that waits, from the store."""
        body = self._store.body(seq)
        if body is None:
            raise StoreCorrupt(f"Update {seq} was accepted, but its body is gone.")
        return wire.decode_update(body, self._layout, extras=self._extras, worker=worker)

    def published(self, folded: Sequence[tuple[int, str]]) -> None:
        """A version holds these (seq, worker) now: their workers' shares are free again."""
        with self._wake:
            self._taken.difference_update(seq for seq, _ in folded)
        self._shares.folded(Counter(worker for _, worker in folded))
