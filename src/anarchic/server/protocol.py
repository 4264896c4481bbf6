"""One connection: uvicorn's protocol with limits, one request at a time.

This relies on parts of uvicorn that it does not promise to keep. The extra ``server`` therefore
pins uvicorn to the versions that were tested, and tests/server/test_protocol.py says what has
changed if another version lacks one of these parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anarchic.server.connections import Closable, Connections
from anarchic.server.proxies import Proxies
from anarchic.server.refusals import Refusal, RefusalLog, length_required
from anarchic.server.settings import Limits
from anarchic.server.slots import network
from anarchic.server.tls import names_in

REFUSED_BODY_S = 5.0  # how long the rest of a body is read and dropped after an early answer
READER_S = 20.0  # how far a reader may be behind the least rate
END_OF_HEAD = b"\r\n\r\n"  # the parser takes no other
NO_PROXIES = Proxies()

HEAD_TOO_LARGE = Refusal(
    431, "head_too_large", "The head of the request is too large.", "Send fewer headers."
)
HEAD_TOO_SLOW = Refusal(
    408, "too_slow", "The head of the request did not come in time.", "Send it at once."
)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on connections, header size, body time and slow readers.

    The parser is given the bytes of one request. What comes behind them waits until the request
    is answered. Once that is more than a head may have, nothing more is read.
    """

    def __init__(
        self, *given: Any, limits: Limits, all_connections: Connections,
        refusals: RefusalLog | None = None, proxies: Proxies = NO_PROXIES,
        bind_names: bool = False, **named: Any,
    ) -> None:  # fmt: skip
        super().__init__(*given, **named)
        self._proxies, self._is_proxy = proxies, False  # whether the other side is one
        self._limits, self._all, self._refusals = limits, all_connections, refusals
        self._bind_names = bind_names
        self._names: frozenset[str] | None = None  # in the client's certificate, if they bind
        self.network = ""  # where it comes from
        self.arriving: Closable | None = None  # what stands for it until it is made
        self._head_timer = _Timer(self.loop)  # runs while a head is awaited
        self._refused_timer = _Timer(self.loop)  # runs while a refused body still comes
        self._reader_timer = _Timer(self.loop)  # runs while the reader must catch up
        self._head_bytes = 0  # of a head that has not ended
        self._head_tail = b""  # the last of them, which may begin the end of the head
        self._body_left = 0  # bytes of the body that are still to come
        self._past_parser = False  # they do not go through the parser
        self._waiting = b""  # bytes behind the request in progress, from ``_waiting_at``
        self._waiting_at = 0
        self._dropping = False  # what still comes is read and dropped
        self._paused_at = 0.0  # when writing was paused
        self._behind_s = 0.0  # how much longer than allowed this reader has taken so far
        self._unread = 0  # bytes that the reader had to take when writing was paused

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self.network = network(self.client[0]) if self.client else ""
        self._is_proxy = self.client is not None and self.client[0] in self._proxies
        if self._bind_names:
            self._names = names_in(transport.get_extra_info("ssl_object"))
        self._all.enter(self, self.arriving)
        self.arriving = None
        self._await_head()

    def abort(self) -> None:
        """Close at once, for a new connection."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._dropping:
            return
        if len(data) <= self._body_left:  # most of what ever comes
            self._body_left -= len(data)
            if not self.cycle.response_complete:
                self._all.waited_for(self)
            self._take(data)
            return
        self._waiting = self._waiting[self._waiting_at :] + data
        self._waiting_at = 0
        self._parse_waiting()

    def _parse_waiting(self) -> None:
        """Parse up to the end of a request; the rest waits until that is answered."""
        while self._waiting_at < len(self._waiting) and not self._answering:
            at = self._waiting_at
            self._waiting_at = self._end_of_body() if self._body_left else self._end_of_head()
            if self._waiting_at == at:
                self._hang_up(HEAD_TOO_LARGE)
            else:
                self._take(self._waiting[at : self._waiting_at])
            if self._dropping or self.transport.is_closing():
                self._waiting_at = len(self._waiting)
        if self._waiting_at == len(self._waiting):
            self._waiting, self._waiting_at = b"", 0
        was_full = self.flow.full
        left = len(self._waiting) - self._waiting_at  # a few: go on, to see when the client leaves
        self.flow.full = left > self._limits.header_bytes or (self._dropping and self._answering)
        if self.flow.full:
            self.flow.pause_reading()
        elif was_full and (self.cycle is None or self.cycle.response_complete):
            self.flow.resume_reading()  # otherwise uvicorn does so when the request needs more

    def _take(self, data: bytes) -> None:
        """Bytes of a head, or of a body."""
        if not self._past_parser:
            super().data_received(data)
            return
        self.on_body(data)
        if not self._body_left:
            self._past_parser = False
            self.on_message_complete()

    @property
    def _answering(self) -> bool:
        """Whether a request has come as a whole and its answer has not gone as a whole."""
        return not (self.cycle is None or self.cycle.response_complete or self.cycle.more_body)

    def _end_of_body(self) -> int:
        """Where the body ends among the waiting bytes, or the bytes end."""
        size = min(self._body_left, len(self._waiting) - self._waiting_at)
        self._body_left -= size
        return self._waiting_at + size

    def _end_of_head(self) -> int:
        """Where the head ends among the waiting bytes, or the bytes, or what a head may have."""
        if not self._head_timer.running:
            self._await_head()
        room = self._limits.header_bytes - self._head_bytes
        part = self._waiting[self._waiting_at : self._waiting_at + room]
        found = (self._head_tail + part).find(END_OF_HEAD)
        if found < 0:
            size, self._head_tail = len(part), (self._head_tail + part)[-3:]
        else:
            size, self._head_tail = found + len(END_OF_HEAD) - len(self._head_tail), b""
        self._head_bytes += size
        return self._waiting_at + size

    def on_message_begin(self) -> None:
        if self._answering:  # a request without a version ends with its first line
            raise ValueError("two requests in one head")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_timer.cancel()
        self._head_bytes = 0
        known = dict(self.headers)  # the parser takes no second length
        if b"transfer-encoding" in known:
            self._refuse_chunks()
        self._body_left = int(known.get(b"content-length", 0))
        self.scope["hang_up"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        if self._names is not None:
            self.scope["certificate_names"] = self._names  # type: ignore[typeddict-unknown-key]
        self._take_proxys_word()
        super().on_headers_complete()
        self._all.waited_for(self)
        # A wish for another protocol (``Upgrade: h2c``) is ignored, as HTTP allows. The parser
        # takes the message to end with such a head.
        self._past_parser = self._body_left > 0 and self.parser.should_upgrade()

    def _take_proxys_word(self) -> None:
        """The request is that of the proxy's client, and counts as its own."""
        if not self._is_proxy or self.client is None:
            return
        address = self._proxies.client(self.client[0], self.headers)
        self.scope["client"] = (address, 0)
        if self._bind_names:
            names = self._proxies.certificate_names(self.client[0], self.headers)
            self.scope["certificate_names"] = names  # type: ignore[typeddict-unknown-key]
        self._all.at_work(self)  # out of where it was counted
        self.network = network(address)

    def _refuse_chunks(self) -> None:
        """A chunked body may be followed by any number of headers, and no route needs one.

        What follows is dropped for a while, as in ``on_body``; the error ends the parsing.
        """
        self._refuse(length_required())
        self._dropping = True
        self._refused_timer.start(REFUSED_BODY_S, self.transport.abort)
        raise ValueError("a body of unknown length")

    def on_body(self, body: bytes) -> None:
        # What follows an early answer is read and dropped for a while: closing at once would
        # reset the connection, and a sender that is still sending would lose the answer.
        if self.cycle.response_complete and not self._refused_timer.running:
            self._refused_timer.start(REFUSED_BODY_S, self.transport.abort)
        super().on_body(body)

    def _unsupported_upgrade_warning(self) -> None:
        """uvicorn would log that it lacks a library."""

    def on_message_complete(self) -> None:
        if self._past_parser:
            return
        self._refused_timer.cancel()
        self.scope["came"] = True  # type: ignore[typeddict-unknown-key]
        super().on_message_complete()
        if self._answering:
            self._work()

    def _work(self) -> None:
        """The server has the next step. Only a POST keeps its connection for that.

        Whatever is read can be asked for again, and a stream of events never ends.
        """
        if self.scope["method"] == "POST":
            self._all.at_work(self)
        else:
            self._all.waited_for(self)

    def on_response_complete(self) -> None:
        self.cycle.body = bytearray()  # what a refused request sent, and nobody will read
        if not self.flow.write_paused:
            self._all.idle(self)
        super().on_response_complete()
        if self._waiting and not self.transport.is_closing():
            self._parse_waiting()

    def pause_writing(self) -> None:
        """The reader must take what is buffered at the least rate, ``READER_S`` late in all."""
        super().pause_writing()
        self._all.waited_for(self)
        self._paused_at = self.loop.time()
        self._unread = self.transport.get_write_buffer_size()
        left_s = READER_S - self._behind_s + self._unread / self._limits.least_rate
        self._reader_timer.start(left_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._reader_timer.cancel()
        if self.cycle is None or self.cycle.response_complete:
            self._all.idle(self)
        else:
            self._work()
        late_s = self.loop.time() - self._paused_at - self._unread / self._limits.least_rate
        self._behind_s = max(0.0, self._behind_s + late_s)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._refused_timer, self._reader_timer):
            timer.cancel()
        self._unset_keepalive_if_required()  # uvicorn does so only if the connection was not reset
        self._all.forget(self)
        self._waiting = b""
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed; a request in progress gets its own answer."""
        if self._answering:
            self._dropping = True
            self.cycle.keep_alive = False
        else:
            self._hang_up(Refusal(400, "malformed", msg, "Send HTTP/1.1."))

    def _await_head(self) -> None:
        self._head_bytes, self._head_tail = 0, b""
        self._head_timer.start(self._limits.header_s, self._hang_up, HEAD_TOO_SLOW)

    def _hang_up(self, refusal: Refusal) -> None:
        self._head_timer.cancel()
        if not (self._dropping or self.transport.is_closing()):
            self._refuse(refusal)
            self.transport.close()

    def _refuse(self, refusal: Refusal) -> None:
        if self._refusals is not None:
            self._refusals.add(refusal, self.client[0] if self.client else "")
        self.transport.write(_plain_answer(refusal))


class _Flow(FlowControl):
    """Reads nothing while bytes wait behind a request, whoever asks for more."""

    full = False

    def resume_reading(self) -> None:
        if not self.full:
            super().resume_reading()


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
        f"content-length: {len(body)}\r\nconnection: close\r\n"
    )
    named = "".join(f"{name}: {value}\r\n" for name, value in refusal.headers.items())
    return f"{head}{named}\r\n".encode() + body
