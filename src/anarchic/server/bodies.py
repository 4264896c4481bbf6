"""Reading the bodies of updates, from senders who may be slow, many, or hostile.

Of every body the first piece is read at once, into a pool that is shared fairly. A larger body
then needs a slot. Before it gets one the header of the update is checked, which is in the first
piece, so that junk costs no slot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.types import Receive

from anarchic.errors import AnarchicError, MalformedUpdate, NotFinite
from anarchic.server.records import Receipt
from anarchic.server.refusals import Refusal, busy
from anarchic.server.settings import Limits
from anarchic.server.slots import Pool, Slot, Slots

LOOK_S = 0.5  # how often the rate of a body is measured
SLOW_S = 2.0  # how long a body may be too slow

Submit = Callable[[bytearray], Awaitable[Receipt]]


class Disconnected(Exception):
    """The worker closed the connection; there is nobody to answer."""


class Bodies:
    """All bodies that are being sent now, and what they may take of the memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pieces = Pool(limits.waiting_bodies * limits.first_piece)
        self._slots = Slots(limits)

    async def read(
        self, receive: Receive, length: int, key: str, *, check: Callable[[bytearray], None],
        submit: Submit, came: bool = False, allowed: Callable[[], None] = lambda: None,
        run: str = "",
    ) -> Receipt:  # fmt: skip
        """Read a body and submit it. ``check`` looks at the first piece of a large one.

        If all of it ``came`` with the head, as small ones do, nothing needs to be awaited.
        """
        body = Body(receive, length, self._limits)
        size = min(length, self._limits.first_piece)
        piece = self._pieces.take(key, size, body.give_way, run=run)
        slot: Slot | None = None
        wasted = True
        try:
            if came and length <= self._limits.first_piece:
                await body.first_piece()
            else:
                async with body.in_time():
                    await body.first_piece()
                    piece.ready = True
                    if not body.complete:
                        check(body.held)
                        slot = await self._slots.take(
                            key, length, rate=body.rate, give_way=body.give_way, run=run
                        )
                        self._pieces.end(piece)  # a slot has room for the whole body
                        await body.rest(allowed)
                        self._slots.keep(slot)
            piece.kept = True
            receipt = await submit(body.held)
            wasted = False
            return receipt
        except Refusal as refusal:
            wasted = refusal.status in (400, 408)
            raise
        except AnarchicError as error:
            wasted = isinstance(error, MalformedUpdate | NotFinite)
            raise
        finally:
            self._pieces.end(piece)
            if slot is not None:
                self._slots.end(slot, wasted=wasted)


class Body:
    """Reads a request's body of known length, and refuses senders that are too slow."""

    def __init__(self, receive: Receive, length: int, limits: Limits) -> None:
        self._receive, self._length, self._limits = receive, length, limits
        # Zeros cost no memory before they are written to.
        self.held, self._got = bytearray(min(length, limits.first_piece)), 0
        self._timer: asyncio.Timeout | None = None  # while the body is being read
        self._gave_way = False
        self.rate = float("inf")  # bytes per second at the end of the first piece

    def give_way(self) -> None:
        """Others need the memory that this body takes: refuse it."""
        if self._timer is not None and not self._gave_way:
            self._gave_way = True
            with suppress(RuntimeError):  # it is late already
                self._timer.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Around all reading: what is late, or has to give way, is refused."""
        limit_s = max(self._limits.first_piece_s, len(self.held) / self._limits.least_rate)
        try:
            async with asyncio.timeout(limit_s) as self._timer:
                yield
        except TimeoutError:
            told = f"{self._got} of {self._length} bytes came"
            if self._gave_way:
                raise busy(2.0, f"{told}, and others need the room.") from None
            told = f"Only {told} within {limit_s:g} s."
            raise Refusal(408, "too_slow", told, "Send the same update again.") from None
        finally:
            self._timer = None

    async def first_piece(self) -> None:
        """Read the first piece, which costs little memory; slow senders never get beyond it."""
        size = len(self.held)
        half_s, half = 0.0, 0
        while self._got < size:
            await self._take()
            if not half and 2 * self._got >= size:
                half_s, half = time.monotonic(), self._got
        took_s = time.monotonic() - half_s
        if half < self._got and took_s > 0:
            self.rate = (self._got - half) / took_s
        if self._timer is not None:
            self._timer.reschedule(None)

    @property
    def complete(self) -> bool:
        return self._got == self._length

    async def rest(self, allowed: Callable[[], None] = lambda: None) -> None:
        """Read all of it; refused after two seconds below the least rate, and if it is late.
        ``allowed`` is asked again and again, and refuses whoever may no longer push.

        Whether it must give way to others is not decided here: an honest worker may have a slow
        line, and ``Slots`` knows what its share is.
        """
        self._make_room(self._length)
        began, slow = time.monotonic(), 0
        while not self.complete:
            allowed()
            before, until = self._got, time.monotonic() + LOOK_S
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    while not self.complete and time.monotonic() < until:
                        await self._take()
            if self.complete:
                break
            if time.monotonic() - until > LOOK_S / 2:
                continue  # it was the server that could not keep up
            least = self._limits.least_rate
            slow = slow + 1 if self._got - before < least * LOOK_S else 0
            late = time.monotonic() - began > SLOW_S + self._length / least
            if late or slow * LOOK_S >= SLOW_S:
                told = f"{self._got} of {self._length} bytes came, too slowly."
                raise Refusal(408, "too_slow", told, "Send the same update again.")

    async def _take(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk: bytes = message.get("body", b"")
        end = self._got + len(chunk)
        if end > self._length or (end < self._length and not message.get("more_body", False)):
            than = "longer" if end > self._length else "shorter"
            raise Refusal(400, "malformed", f"The body is {than} than it said.", "Send it whole.")
        self._make_room(end)
        self.held[self._got : end] = chunk
        self._got = end

    def _make_room(self, size: int) -> None:
        if size > len(self.held):
            larger = bytearray(size)
            larger[: self._got] = memoryview(self.held)[: self._got]
            self.held = larger
