"""The collecting half of the server: checks updates and makes them durable, many at a time.

The event loop reads bodies and checks them. One thread writes: whatever has come in while it was
busy becomes its next transaction, so that the price of a sync is shared by all who wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, replace

import numpy as np

from anarchic import wire
from anarchic.core.checking import CheckedUpdate, check
from anarchic.core.types import Layout, Vector
from anarchic.errors import NotFinite, StaleUpdate, StoreError
from anarchic.server.aggregate import Aggregator
from anarchic.server.board import Board
from anarchic.server.limits import Pace, Shares
from anarchic.server.refusals import Refusal, name_taken
from anarchic.server.settings import Limits
from anarchic.server.store import NewUpdate, Receipt, Store
from anarchic.wire import Decoded

GROUP_UPDATES, GROUP_BYTES = 64, 64 << 20
INLINE_BYTES = 1 << 18  # larger bodies are checked outside the event loop


@dataclass(frozen=True, slots=True)
class Checked:
    """An update that may be accepted."""

    new: NewUpdate
    decoded: Decoded


@dataclass(frozen=True, slots=True)
class Waiting:
    """An update on its way to the disk, and who wants to know."""

    new: NewUpdate
    decoded: Decoded
    done: Callable[[Receipt | StoreError], None]


class Collector:
    """Takes bodies, gives receipts."""

    def __init__(
        self, store: Store, layout: Layout, board: Board, aggregator: Aggregator, limits: Limits
    ) -> None:
        self._store, self._layout, self._board = store, layout, board
        self._like: Vector = np.zeros(0, np.float32)  # a vector of the model, without the numbers
        self.extras: frozenset[str] = frozenset()
        self._aggregator, self._limits = aggregator, limits
        share = limits.share(aggregator.m)
        self.shares = Shares(share, share if limits.per_worker else aggregator.m)
        self.pace = Pace(limits.updates_per_minute, limits.burst)
        self._queue: list[Waiting] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._write, name="collect", daemon=True)

    def start(self) -> None:
        """Once the board has a version, which says what updates look like."""
        snapshot = self._board.newest.snapshot
        self._like = np.broadcast_to(snapshot.params.dtype.type(0), snapshot.params.shape)
        self.extras = frozenset(snapshot.extras)
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Write what is waiting, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)

    async def submit(
        self, body: bytearray, worker: str | None, reserved: Container[str] = ()
    ) -> Receipt:
        """Check an update, make it durable, and say what became of it; or raise a refusal.

        ``worker`` is None where enrolment is open: then the update says who sent it, but not
        that it was one of ``reserved``, and only then its pace is looked at here.
        """
        try:
            return await self._accept(body, worker, reserved)
        except StaleUpdate as refusal:  # found before a stranger's name and pace were looked at
            return await self._settle(body, worker, refusal, reserved)
        except Refusal as refusal:
            if refusal.code != "too_many_updates":
                raise
            return await self._settle(body, worker, refusal)

    async def _accept(
        self, body: bytearray, worker: str | None, reserved: Container[str]
    ) -> Receipt:
        if len(body) <= INLINE_BYTES:
            checked = self._checked(body, worker)
        else:
            checked = await asyncio.to_thread(self._checked, body, worker)
        name = checked.new.worker
        if worker is None:
            self._admit(name, reserved)
        await self._check_known(checked.new.base_version)
        receipt = await self._durable(checked)
        if receipt.outcome == "conflict":
            raise Refusal(
                409,
                "conflict",
                f"Worker {name!r} has sent another update with the id {checked.new.id!r}.",
                "Give every update an id of its own.",
            )
        return receipt

    async def _settle(
        self,
        body: bytearray,
        worker: str | None,
        refusal: Exception,
        reserved: Container[str] | None = None,
    ) -> Receipt:
        """The receipt of what was accepted before, if that is what would be refused by now.

        With ``reserved`` a stranger's name and pace are looked at first, as for a new update.
        """
        name, id, digest = await asyncio.to_thread(self._named, body, worker)
        if worker is None and reserved is not None:
            self._admit(name, reserved)
        seq = await asyncio.to_thread(self._store.seen, name, id, digest)
        if seq is None:
            raise refusal
        return Receipt("duplicate", seq)

    def _admit(self, stranger: str, reserved: Container[str]) -> None:
        if stranger in reserved:
            raise name_taken(stranger)
        self.pace.take(stranger)

    def _named(self, body: bytearray, worker: str | None) -> tuple[str, str, bytes]:
        decoded = wire.decode_update(body, self._layout, extras=self.extras, worker=worker)
        update = decoded.update
        return update.worker, update.id, hashlib.sha256(body).digest()

    def _checked(self, body: bytearray, worker: str | None) -> Checked:
        newest = self._board.newest.version
        decoded = wire.decode_update(body, self._layout, extras=self.extras, worker=worker)
        update = decoded.update
        if decoded.run not in (None, self._board.run):
            raise Refusal(
                409,
                "unknown_version",
                "The update starts from a version of another run.",
                "Pull the model and train from what you get.",
            )
        seen = check(
            update,
            params=self._like,
            version=max(newest, update.base_version),
            oldest=max(0, newest - self._limits.max_staleness),
            extras=self.extras,
            measured=True,
        )
        self._check_length(seen)
        new = NewUpdate(
            worker=update.worker,
            id=update.id,
            digest=hashlib.sha256(body).digest(),
            base_version=update.base_version,
            local_steps=update.local_steps,
            local_lr=update.local_lr,
            samples=update.samples,
            norm=update.local_lr * (seen.norm or 0.0),
            received_s=time.time(),
            body=body,
        )
        return Checked(new, replace(decoded, update=seen))

    def _check_length(self, seen: CheckedUpdate) -> None:
        most, longest = self._limits.max_norm, seen.norm or 0.0
        if seen.extras:  # what a local rule shares is as long as a direction, and stays
            longest = max(longest, seen.longest)
        length = self._aggregator.scale(seen.local_lr, seen.local_steps) * longest
        if most is not None and length > most:
            raise NotFinite(
                f"The update of worker {seen.worker!r} has norm {length:g}; this server takes "
                f"norms up to {most:g}."
            )

    async def _check_known(self, base_version: int) -> None:
        """A version newer than ours is another replica's, published just now, or an invention."""
        newest = self._board.newest.version
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

    async def _durable(self, checked: Checked) -> Receipt:
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
            self.shares.take(checked.new.worker)
            self._queue.append(Waiting(checked.new, checked.decoded, tell))
            self._wake.notify()
        return await future

    def _write(self) -> None:
        while (group := self._next_group()) is not None:
            try:
                with self._aggregator.handover:
                    receipts = self._store.append([waiting.new for waiting in group])
                    self._hand_over(group, receipts)
            except Exception as error:  # whatever it was: the next group may fare better
                told = error if isinstance(error, StoreError) else StoreError(repr(error))
                for waiting in group:
                    self.shares.sent(waiting.new.worker, accepted=False)
                    waiting.done(told)
                self._aggregator.look()  # the store may hold them all the same
                continue
            for receipt, waiting in zip(receipts, group, strict=True):
                waiting.done(receipt)

    def _hand_over(self, group: list[Waiting], receipts: list[Receipt]) -> None:
        accepted = []
        for receipt, waiting in zip(receipts, group, strict=True):
            new = receipt.outcome == "accepted"
            self.shares.sent(waiting.new.worker, accepted=new)
            if new:
                accepted.append((receipt.seq, waiting.decoded))
        self._aggregator.offer(accepted)

    def _next_group(self) -> list[Waiting] | None:
        with self._wake:
            while not self._queue:
                if self._stopping:
                    return None
                self._wake.wait()
            size = count = 0
            for waiting in self._queue[:GROUP_UPDATES]:
                size += len(waiting.new.body)
                if count and size > GROUP_BYTES:
                    break
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
            return group
