"""One connection: uvicorn's protocol with limits.

This relies on parts of uvicorn that it does not promise to keep. The extra ``server`` therefore
pins uvicorn to the versions that were tested, and tests/server/test_protocol.py says what has
changed if another version lacks one of these parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anarchic.server.refusals import Refusal, length_required
from anarchic.server.settings import Limits

REFUSED_BODY_S = 5.0  # how long the rest of a body is read and dropped after an early answer
READER_S = 20.0  # how far a reader may be behind the least rate

HEAD_TOO_LARGE = Refusal(
    431, "head_too_large", "The head of the request is too large.", "Send fewer headers."
)
HEAD_TOO_SLOW = Refusal(
    408, "too_slow", "The head of the request did not come in time.", "Send it at once."
)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on connections, header size, body time and slow readers."""

    def __init__(self, *given: Any, limits: Limits, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        self._head_timer = _Timer(self.loop)  # runs while a head is awaited
        self._refused_timer = _Timer(self.loop)  # runs while a refused body still comes
        self._reader_timer = _Timer(self.loop)  # runs while the reader must catch up
        self._quiet_since = 0.0  # since when the server waits for the other side
        self._head_bytes = 0
        self._dropping = False  # what still comes is read and dropped
        self._aborted = False
        self._behind_s = 0.0  # how much longer than allowed this reader has taken so far
        self._unread = 0  # bytes that the reader had to take when writing was paused

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._quiet_since = self.loop.time()
        self._await_head()
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def _make_room(self) -> None:
        """Close the connection that has kept the server waiting longest."""
        others = (other for other in self.connections if isinstance(other, BoundedProtocol))
        waited_for = [other for other in others if other is not self and other._is_waited_for()]
        if waited_for:
            longest = min(waited_for, key=lambda other: other._quiet_since)
            longest._aborted = True
            longest.transport.abort()

    def _is_waited_for(self) -> bool:
        """Whether the server waits for a request, the rest of one, or the reading of an answer."""
        if self._aborted:
            return False
        if self.flow.write_paused or self.transport.is_closing():
            return True
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def on_response_complete(self) -> None:
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        if self._dropping:
            return
        if self._head_timer.running:
            room = self._limits.header_bytes - self._head_bytes
            self._head_bytes += len(data)
            super().data_received(data[:room])
            if self._head_timer.running and len(data) > room:
                self._hang_up(HEAD_TOO_LARGE)
            data = data[room:]
        if data and not (self._dropping or self.transport.is_closing()):
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._head_timer.running:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_timer.cancel()
        if any(name == b"transfer-encoding" for name, _ in self.headers):
            self._refuse_chunks()
        super().on_headers_complete()

    def _refuse_chunks(self) -> None:
        """A chunked body may be followed by any number of headers, and no route needs one.

        What follows is dropped for a while, as in ``on_body``; the error ends the parsing.
        """
        self.transport.write(_plain_answer(length_required()))
        self._dropping = True
        self._refused_timer.start(REFUSED_BODY_S, self.transport.abort)
        raise ValueError("a body of unknown length")

    def on_body(self, body: bytes) -> None:
        # What follows an early answer is read and dropped for a while: closing at once would
        # reset the connection, and a sender that is still sending would lose the answer.
        if self.cycle.response_complete and not self._refused_timer.running:
            self._refused_timer.start(REFUSED_BODY_S, self.transport.abort)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._refused_timer.cancel()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The reader must take what is buffered at the least rate, ``READER_S`` late in all."""
        super().pause_writing()
        self._quiet_since = self.loop.time()
        self._unread = self.transport.get_write_buffer_size()
        left_s = READER_S - self._behind_s + self._unread / self._limits.least_rate
        self._reader_timer.start(left_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._reader_timer.cancel()
        late_s = self.loop.time() - self._quiet_since - self._unread / self._limits.least_rate
        self._behind_s = max(0.0, self._behind_s + late_s)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._refused_timer, self._reader_timer):
            timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._hang_up(Refusal(400, "malformed", msg, "Send HTTP/1.1."))

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_timer.start(self._limits.header_s, self._hang_up, HEAD_TOO_SLOW)

    def _hang_up(self, refusal: Refusal) -> None:
        self._head_timer.cancel()
        if not (self._dropping or self.transport.is_closing()):
            self.transport.write(_plain_answer(refusal))
            self.transport.close()


class _Timer:
    """Calls something after a delay, unless it is cancelled. It runs until then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        return self._handle is not None

    def start(self, delay_s: float, call: Callable[..., object], *given: Any) -> None:
        self._handle = self._loop.call_later(delay_s, call, *given)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _plain_answer(refusal: Refusal) -> bytes:
    body = refusal.body()
    head = (
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
