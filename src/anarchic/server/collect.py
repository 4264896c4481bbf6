"""Collecting: bodies become receipts, and many updates become durable in one transaction.

The event loop checks small bodies, threads check large ones. One thread writes: whatever has come
in while it was busy becomes its next transaction, so that all who wait share the cost of a sync.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

from anarchic.errors import StaleUpdate, StoreError
from anarchic.server.access import Access
from anarchic.server.check import SubmittedUpdate, UpdateCheck
from anarchic.server.pending import Pending
from anarchic.server.published import PublishedModels
from anarchic.server.records import Receipt
from anarchic.server.refusals import Refusal
from anarchic.server.store import Store

GROUP_UPDATES, GROUP_BYTES = 64, 64 << 20
INLINE_BYTES = 1 << 18  # larger bodies are checked outside the event loop


@dataclass(frozen=True, slots=True)
class _Writing:
    """An update that waits to be written, and whom to tell."""

    checked: SubmittedUpdate
    done: Callable[[Receipt | StoreError], None]


class Collector:
    """Takes the bodies of updates and gives receipts once the updates are durable."""

    def __init__(
        self,
        store: Store,
        check: UpdateCheck,
        access: Access,
        pending: Pending,
        published: PublishedModels,
    ) -> None:
        self._store, self._check, self._access = store, check, access
        self._pending, self._published = pending, published
        self._queue: list[_Writing] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._write, name="collect", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Write what is waiting, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)

    async def submit(self, body: bytearray, worker: str | None) -> Receipt:
        """Check an update, make it durable, and say what became of it; or raise a refusal.

        ``worker`` is None where enrolment is open and no token came: the update names its sender,
        whose name and pace are checked here.
        """
        try:
            return await self._accept(body, worker)
        except StaleUpdate as refusal:  # raised before the name and pace of a sender are checked
            return await self._known(body, worker, refusal, admit=worker is None)
        except Refusal as refusal:
            if refusal.code != "too_many_updates":
                raise
            return await self._known(body, worker, refusal, admit=False)

    async def _accept(self, body: bytearray, worker: str | None) -> Receipt:
        if len(body) <= INLINE_BYTES:
            checked = self._check.check(body, worker)
        else:
            checked = await asyncio.to_thread(self._check.check, body, worker)
        new = checked.new
        if worker is None:
            self._access.admit(new.worker)
        await self._check_base(new.base_version)
        receipt = await self._durable(checked)
        if receipt.outcome == "conflict":
            raise Refusal(
                409,
                "conflict",
                f"Worker {new.worker!r} has sent another update with the id {new.id!r}.",
                "Give every update an id of its own.",
            )
        return receipt

    async def _known(
        self, body: bytearray, worker: str | None, refusal: Exception, *, admit: bool
    ) -> Receipt:
        """The receipt of an update that was accepted before and would be refused by now."""
        name, id, digest = await asyncio.to_thread(self._check.identity, body, worker)
        if admit:
            self._access.admit(name)
        seq = await asyncio.to_thread(self._store.seen, name, id, digest)
        if seq is None:
            raise refusal
        return Receipt("duplicate", seq)

    async def _check_base(self, base_version: int) -> None:
        """A version newer than ours was published by another server just now, or is invented."""
        newest = self._published.newest.version
        if base_version <= newest:
            return
        run = await asyncio.to_thread(self._store.run) if self._store.shared else None
        if run is None or base_version > run.version:
            raise Refusal(
                409,
                "unknown_version",
                f"Base version {base_version} does not exist; the newest is {newest}.",
                "Pull the model and train from what you get.",
            )

    async def _durable(self, checked: SubmittedUpdate) -> Receipt:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()

        def done(result: Receipt | StoreError) -> None:
            if future.done():  # the sender is gone; the update counts all the same
                return
            if isinstance(result, StoreError):
                future.set_exception(result)
            else:
                future.set_result(result)

        def tell(result: Receipt | StoreError) -> None:
            loop.call_soon_threadsafe(done, result)

        with self._wake:
            if self._stopping:
                raise Refusal(503, "busy", "The server is stopping.", "Send it again later.", 5.0)
            self._pending.reserve(checked.new.worker)
            self._queue.append(_Writing(checked, tell))
            self._wake.notify()
        return await future

    def _write(self) -> None:
        while (group := self._next_group()) is not None:
            updates = [(writing.checked.new, writing.checked.decoded) for writing in group]
            try:
                receipts = self._pending.accept(updates)
            except Exception as error:  # whatever it was: the next group may succeed
                told = error if isinstance(error, StoreError) else StoreError(repr(error))
                for writing in group:
                    writing.done(told)
                continue
            for receipt, writing in zip(receipts, group, strict=True):
                writing.done(receipt)

    def _next_group(self) -> list[_Writing] | None:
        with self._wake:
            while not self._queue:
                if self._stopping:
                    return None
                self._wake.wait()
            size = count = 0
            for writing in self._queue[:GROUP_UPDATES]:
                size += len(writing.checked.new.body)
                if count and size > GROUP_BYTES:
                    break
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
            return group
