"""Collecting: bodies become receipts, and many updates become durable in one transaction.

The event loop checks small bodies, threads check large ones. One thread writes: whatever has come
in while it was busy becomes its next transaction, so that all who wait share the cost of a sync.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

import numpy as np

from anarchic import wire
from anarchic.core.buffers import trained_norm
from anarchic.core.checking import CheckedUpdate, check
from anarchic.core.inspection import negative_variance
from anarchic.core.rule import Rule
from anarchic.core.types import Layout, Vector
from anarchic.errors import MalformedUpdate, NotFinite, StaleUpdate, StoreError, UpdateRefused
from anarchic.server.access import Access, Pusher
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.few_threads import FAILED_S, FewThreads, work_of
from anarchic.server.monitoring import ServerMetrics
from anarchic.server.pending import Pending
from anarchic.server.published import PublishedModels
from anarchic.server.records import NewUpdate, Receipt, epoch_of
from anarchic.server.refusals import Refusal
from anarchic.server.settings import Limits
from anarchic.server.steering import Steering
from anarchic.server.store import Store
from anarchic.wire import Decoded
from anarchic.wire.messages import claimed_worker

GROUP_UPDATES, GROUP_BYTES = 64, 64 << 20
PULL_AGAIN = "Pull the model and train from what you get."
UNKNOWN_S = 60.0  # after a failed write; workers are told to come again after 30 s at most
LEAST_RATE = 1e-30  # of a worker; below about 1e-308 norms and what they are divided by overflow
INLINE_BYTES = 1 << 18  # larger bodies are checked outside the event loop

Waiting = Future[Receipt] | asyncio.Future[Receipt]  # for a thread, or for the event loop


class _Writing(NamedTuple):
    """An update that waits to be written, and the receipt that its sender waits for."""

    new: NewUpdate
    decoded: Decoded
    receipt: Waiting


class UpdateCheck:
    """Reads updates and refuses those that the rule could not fold or the limits forbid."""

    def __init__(
        self,
        layout: Layout,
        rule: Rule[Any],
        published: PublishedModels,
        limits: Limits,
        clock: Clock = SYSTEM,
    ) -> None:
        self._layout, self.rule = layout, rule
        self._published, self._limits, self._clock = published, limits, clock
        zero = np.float64(0) if "F64" in layout.dtypes else np.float32(0)
        self._like: Vector = np.broadcast_to(zero, (layout.dim,))  # takes no memory

    @property
    def most_bytes(self) -> int:
        """The size of the largest body that can be an update of this run."""
        return wire.most_body_bytes(self._layout, self._published.newest.extras)

    def check(self, body: bytearray, worker: str | None) -> tuple[NewUpdate, Decoded]:
        """The update in a body, or a refusal. Without ``worker`` the update names its sender."""
        newest = self._published.newest
        decoded = wire.decode_update(body, self._layout, extras=newest.extras, worker=worker)
        update = decoded.update
        if decoded.run not in (None, newest.run):
            told = "The update starts from a version of another run."
            raise Refusal(409, "unknown_version", told, PULL_AGAIN)
        seen = check(
            update,
            params=self._like,
            version=max(newest.version, update.base_version),
            oldest=max(0, newest.version - self._limits.max_staleness),
            extras=newest.extras,
            measured=True,
        )
        _check_rate(seen)
        self._check_variances(seen)
        self._check_length(seen)
        new = NewUpdate(
            worker=update.worker,
            id=update.id,
            digest=hashlib.sha256(body).digest(),
            base_version=update.base_version,
            local_steps=update.local_steps,
            local_lr=update.local_lr,
            samples=update.samples,
            norm=update.local_lr * trained_norm(self._layout, seen),
            received_s=self._clock.time(),
            body=body,
        )
        return new, Decoded(seen, decoded.loss, decoded.run, decoded.epoch)

    def check_beginning(self, body: bytearray, length: int, worker: str | None) -> None:
        """Refuse a body of this length whose header, if it is here, is not that of an update."""
        extras = self._published.newest.extras
        wire.check_beginning(body, length, self._layout, extras=extras, worker=worker)

    def claimed_worker(self, body: bytearray) -> str | None:
        """Who sent an update that is refused, as the update says."""
        return claimed_worker(body, self._layout, self._published.newest.extras)

    def _check_variances(self, seen: CheckedUpdate) -> None:
        """Each update counts in a mean, which is none of a variance if one of them is none."""
        found = negative_variance(self._layout, seen.direction)
        if found is not None:
            raise MalformedUpdate(
                f"The update of worker {seen.worker!r} has a variance below 0 in {found[0]} "
                f"({found[1]:g}): send buffers as they are at the end of the visit, not what they "
                "changed by."
            )

    def _check_length(self, seen: CheckedUpdate) -> None:
        # Without a limit too: a rule refuses here the numbers that it cannot work with.
        scale = self.rule.scale(seen.local_lr, seen.local_steps)
        most = self._limits.max_norm
        if most is None:
            return
        longest = trained_norm(self._layout, seen)
        if seen.extras:  # what a local rule shares is as long as a direction, and stays
            longest = max(longest, seen.longest)
        length = scale * longest
        if length > most:
            raise NotFinite(
                f"The update of worker {seen.worker!r} has norm {length:g}; this server takes "
                f"norms up to {most:g}."
            )

    def identity(self, body: bytearray, worker: str | None) -> tuple[str, str, bytes]:
        """Worker, id and SHA-256 of an update, which name it in the store."""
        extras = self._published.newest.extras
        update = wire.decode_update(body, self._layout, extras=extras, worker=worker).update
        return update.worker, update.id, hashlib.sha256(body).digest()


def _check_rate(seen: CheckedUpdate) -> None:
    """Here and not in ``check``: a wrapper may multiply a rate by any small factor."""
    if not seen.local_lr >= LEAST_RATE:
        raise MalformedUpdate(
            f"The update of worker {seen.worker!r} has local_lr={seen.local_lr:g}; send a rate of "
            f"at least {LEAST_RATE:g}."
        )


class Collector:
    """Takes the bodies of updates and gives receipts once the updates are durable."""

    def __init__(
        self,
        store: Store,
        check: UpdateCheck,
        access: Access,
        pending: Pending,
        published: PublishedModels,
        steering: Steering,
        metrics: ServerMetrics,
        clock: Clock = SYSTEM,
        threads: FewThreads | None = None,
    ) -> None:
        self._store, self._check, self._access = store, check, access
        self._steering, self._metrics = steering, metrics
        self._pending, self._published, self._clock = pending, published, clock
        self._failure: tuple[StoreError, float] | None = None  # of the last write, and when
        self._queue: list[_Writing] = []
        self._last: list[_Writing] = []  # that were written
        self._wake = threading.Condition()
        self._stopping = False
        self._work = work_of(threads, "collect")

    def start(self) -> None:
        self._work.start(self._piece)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Write what is waiting, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._work.finish(timeout_s)

    def check_beginning(self, body: bytearray, *, length: int, worker: str | None) -> None:
        """Refuse what cannot become an update, by the first piece of its body."""
        self._check.check_beginning(body, length, worker)

    async def submit(self, body: bytearray, pusher: Pusher) -> Receipt:
        """Check an update, make it durable, and say what became of it; or raise a refusal.

        Where enrolment is open and no token came, the update names its sender, whose name and pace
        are checked here; of a token it is checked again whether it is still valid.
        """
        try:
            return await self._submit(body, pusher)
        except (Refusal, UpdateRefused) as refusal:
            if pusher.worker is None:
                refusal.worker = self._check.claimed_worker(body)
            raise

    async def _submit(self, body: bytearray, pusher: Pusher) -> Receipt:
        try:
            return await self._accept(body, pusher)
        except StaleUpdate as refusal:  # raised before the sender is admitted
            return await self._known(body, pusher, refusal, admit=True)
        except Refusal as refusal:
            if refusal.code not in ("too_many_updates", "withdrawn"):
                raise
            return await self._known(body, pusher, refusal, admit=False)

    async def _accept(self, body: bytearray, pusher: Pusher) -> Receipt:
        if len(body) <= INLINE_BYTES:
            new, decoded = self._check.check(body, pusher.worker)
        else:
            new, decoded = await asyncio.to_thread(self._check.check, body, pusher.worker)
        self._access.admit(pusher, new.worker)
        self._steering.check_open()  # it may have changed while the body came
        self._steering.check_base(new.base_version)
        await self._check_base(new.base_version, decoded.epoch)
        waiting = asyncio.get_running_loop().create_future()
        self.queue(new, decoded, waiting)
        receipt: Receipt = await waiting
        if receipt.outcome == "conflict":
            told = f"Worker {new.worker!r} has sent another update with the id {new.id!r}."
            raise Refusal(409, "conflict", told, "Give every update an id of its own.")
        if receipt.outcome == "too_old":
            told = (
                f"The update builds on version {new.base_version}: the trace no longer says which "
                "updates of that time were accepted."
            )
            raise Refusal(409, "too_old", told, PULL_AGAIN)
        return receipt

    async def _known(
        self, body: bytearray, pusher: Pusher, refusal: Exception, *, admit: bool
    ) -> Receipt:
        """The receipt of an update that was accepted before and would be refused by now."""
        name, id, digest = await asyncio.to_thread(self._check.identity, body, pusher.worker)
        if admit:
            self._access.admit(pusher, name)
        seq = await asyncio.to_thread(self._store.seen, name, id, digest)
        if seq is None:
            raise refusal
        return Receipt("duplicate", seq)

    async def _check_base(self, base_version: int, epoch: str | None) -> None:
        """Whether the snapshot exists, in the epoch in which the worker says it was published."""
        newest, epochs = self._published.newest.version, self._published.epochs
        if base_version > newest:  # published by another server just now, or invented
            run = await asyncio.to_thread(self._store.run) if self._store.shared else None
            if run is None or base_version > run.version:
                told = f"Base version {base_version} does not exist; the newest is {newest}."
                raise Refusal(409, "unknown_version", told, PULL_AGAIN)
            epochs = await asyncio.to_thread(self._store.epochs)
        if epoch is not None and epoch != epoch_of(epochs, base_version):
            told = (
                f"Version {base_version} is no longer that of epoch {epoch}: the run was restored."
            )
            raise Refusal(409, "unknown_version", told, PULL_AGAIN)

    def queue(self, new: NewUpdate, decoded: Decoded, receipt: Waiting) -> None:
        """Let an update wait for the next write, and its sender for the receipt.

        The update counts though its sender may leave.
        """
        with self._wake:
            if self._stopping:
                raise Refusal(503, "busy", "The server is stopping.", "Send it again later.", 5.0)
            self._pending.reserve(new.worker)
            self._queue.append(_Writing(new, decoded, receipt))
            if len(self._queue) == 1:  # otherwise it is awake
                self._wake.notify()
                self._work.wake()

    def _piece(self) -> float | None:
        """A group, and then others have their turn; see ``RunWork``."""
        try:
            self.write_next(0.0)
        except BaseException:  # those who sent it were told; the next may succeed
            return FAILED_S
        if self._queue:
            return 0.0
        return None if self._stopping else inf

    def write_next(self, wait_s: float | None) -> bool:
        """Write a group of updates that wait, and give the receipts; False where none came.

        Without updates it waits for one, for ``wait_s`` at most, or until it is told to stop.
        """
        # Kept until the next one is there: giving bodies of megabytes back at once, the system maps
        # new pages for the next ones, which costs a tenth of its time.
        self._last = group = self._next_group(wait_s)
        self._write(group)
        return bool(group)

    def _write(self, group: list[_Writing]) -> None:
        if not group:
            return
        begun_s = self._clock.monotonic()
        try:
            receipts = self._pending.accept([(w.new, w.decoded) for w in group])
        except BaseException as error:
            told = error if isinstance(error, StoreError) else StoreError(repr(error))
            self._failure = (told, self._clock.monotonic())
            _tell(group, [told] * len(group))
            if not isinstance(error, Exception):
                raise
            return
        took_s, each = self._clock.monotonic() - begun_s, zip(group, receipts, strict=True)
        accepted = [w.new for w, receipt in each if receipt.outcome == "accepted"]
        if accepted:
            self._failure = None  # others, such as duplicates, write nothing
        _tell(group, receipts)  # first: what follows costs those who wait no time
        self._metrics.stored(accepted, took_s)

    def _next_group(self, wait_s: float | None) -> list[_Writing]:
        with self._wake:
            if not (self._queue or self._stopping):
                self._wake.wait(wait_s)
            size = count = 0
            for writing in self._queue[:GROUP_UPDATES]:
                size += len(writing.new.body)
                if count and size > GROUP_BYTES:
                    break
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
            return group

    @property
    def failure(self) -> StoreError | None:
        """Why updates cannot be stored now, by the last one that came in.

        If none has come for a while, nobody knows: perhaps workers are sent elsewhere because of
        it, and nobody would ever find out that the disk has room again.
        """
        if self._failure is None:
            return None
        error, when = self._failure
        return error if self._clock.monotonic() - when < UNKNOWN_S else None


def _tell(group: list[_Writing], outcomes: Sequence[Receipt | StoreError]) -> None:
    """Wake all who wait for a group, in the event loop: once, for each waking costs it time."""

    def tell() -> None:
        for writing, outcome in zip(group, outcomes, strict=True):
            if writing.receipt.done():  # its sender has left
                continue
            if isinstance(outcome, StoreError):
                writing.receipt.set_exception(outcome)
            else:
                writing.receipt.set_result(outcome)

    first = group[0].receipt
    if isinstance(first, Future):
        tell()
        return
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        first.get_loop().call_soon_threadsafe(tell)
