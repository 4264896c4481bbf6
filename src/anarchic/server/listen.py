"""Listening: uvicorn, with the head of every request bounded in size and in time."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import ssl
import traceback
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anarchic.errors import ConfigError
from anarchic.server.app import make_app
from anarchic.server.log import Log
from anarchic.server.refusals import Refusal, length_required
from anarchic.server.service import Service
from anarchic.server.settings import Limits

REFUSED_BODY_S = 5.0  # how long the rest of a body is read and dropped after an early answer
OTHER_FILES = 128  # that the process has open beside connections: the store, the log
READER_S = 20.0  # how far a reader may be behind the least rate


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where to listen, and with which papers."""

    host: str = "127.0.0.1"
    port: int = 8780
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None  # workers must show a certificate that it signed
    insecure: bool = False  # listen on a public address without TLS all the same

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate and its key.")
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigError("Client certificates need TLS: give a certificate and its key too.")
        for path in (self.tls_cert, self.tls_key, self.client_ca):
            if path is not None and not path.is_file():
                raise ConfigError(f"There is no file {path}.")
        if not (self.tls_cert or self.insecure or _is_loopback(self.host)):
            raise ConfigError(
                f"{self.host} can be reached from elsewhere, and without TLS tokens and updates "
                "travel readable: give a certificate and its key, listen on 127.0.0.1 behind a "
                "proxy, or say --insecure."
            )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bounded_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, less its patience: with heads that never end, with bodies that do not say
    how long they are or go on after they were refused, with readers who do not read, and with more
    of them than it can hold.
    """

    class BoundedProtocol(HttpToolsProtocol):
        _quiet_since = 0.0
        _head_bytes = 0
        _deaf = False  # what still comes is read and dropped
        _sent_off = False
        _behind_s = 0.0  # how much longer than it should this reader has taken so far
        _unread = 0  # bytes that it had to take when writing was paused
        _head_timer: asyncio.TimerHandle | None = None
        _refused_timer: asyncio.TimerHandle | None = None
        _reader_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._quiet_since = self.loop.time()
            self._await_head()
            if len(self.connections) > limits.connections:
                self._make_room()

        def _make_room(self) -> None:
            """Newcomers come before those who have kept the server waiting for the longest."""
            waited_for = [
                other
                for other in self.connections
                if isinstance(other, BoundedProtocol)
                and other is not self
                and not other._sent_off
                and other._keeps_waiting()
            ]
            if waited_for:
                longest = min(waited_for, key=lambda other: other._quiet_since)
                longest._sent_off = True
                longest.transport.abort()

        def _keeps_waiting(self) -> bool:
            """For a request, the rest of one, or its reading of the answer."""
            if self.flow.write_paused or self.transport.is_closing():
                return True
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def on_response_complete(self) -> None:
            self._quiet_since = self.loop.time()
            super().on_response_complete()

        def data_received(self, data: bytes) -> None:
            if self._deaf:
                return
            if self._head_timer is not None:
                room = limits.header_bytes - self._head_bytes
                self._head_bytes += len(data)
                super().data_received(data[:room])
                if self._head_timer is not None and len(data) > room:
                    self._hang_up(HEAD_TOO_LARGE)
                data = data[room:]
            if data and not (self._deaf or self.transport.is_closing()):
                super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._head_timer is None:
                self._await_head()

        def on_headers_complete(self) -> None:
            self._cancel("_head_timer")
            if any(name == b"transfer-encoding" for name, _ in self.headers):
                self._refuse_chunks()
            super().on_headers_complete()

        def _refuse_chunks(self) -> None:
            """A chunked body may end in headers without end, and no route needs one.

            What follows is dropped for a while, as in ``on_body``; the error ends the parsing.
            """
            self.transport.write(_plain_answer(length_required()))
            self._deaf = True
            self._refused_timer = self.loop.call_later(REFUSED_BODY_S, self.transport.abort)
            raise ValueError("a body of unknown length")

        def on_body(self, body: bytes) -> None:
            # What follows an early answer is read and dropped for a while: closing at once would
            # take the answer back from one who is still sending.
            if self.cycle.response_complete and self._refused_timer is None:
                self._refused_timer = self.loop.call_later(REFUSED_BODY_S, self.transport.abort)
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._cancel("_refused_timer")
            super().on_message_complete()

        def pause_writing(self) -> None:
            """What waits must be taken at the least rate; so much lateness in all is suffered."""
            super().pause_writing()
            self._quiet_since = self.loop.time()
            self._unread = self.transport.get_write_buffer_size()
            left_s = READER_S - self._behind_s + self._unread / limits.least_rate
            self._reader_timer = self.loop.call_later(left_s, self.transport.abort)

        def resume_writing(self) -> None:
            self._cancel("_reader_timer")
            late_s = self.loop.time() - self._quiet_since - self._unread / limits.least_rate
            self._behind_s = max(0.0, self._behind_s + late_s)
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel("_head_timer")
            self._cancel("_refused_timer")
            self._cancel("_reader_timer")
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            self._hang_up(Refusal(400, "malformed", msg, "Send HTTP/1.1."))

        def _await_head(self) -> None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(limits.header_s, self._hang_up, HEAD_TOO_SLOW)

        def _cancel(self, name: str) -> None:
            timer = getattr(self, name)
            if timer is not None:
                timer.cancel()
                setattr(self, name, None)

        def _hang_up(self, refusal: Refusal) -> None:
            self._cancel("_head_timer")
            if not (self._deaf or self.transport.is_closing()):
                self.transport.write(_plain_answer(refusal))
                self.transport.close()

    return BoundedProtocol


HEAD_TOO_LARGE = Refusal(
    431, "head_too_large", "The head of the request is too large.", "Send fewer headers."
)
HEAD_TOO_SLOW = Refusal(
    408, "too_slow", "The head of the request did not come in time.", "Send it at once."
)


def _plain_answer(refusal: Refusal) -> bytes:
    body = refusal.body()
    head = (
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body


class _Server(uvicorn.Server):
    """Tells those who listen to events before it waits for them to go."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn has no setting for the patience with handshakes, which is a minute."""
        loop: Any = asyncio.get_running_loop()  # of whatever kind: it takes attributes
        if self.config.is_ssl:
            patience_s = self._service.settings.limits.header_s
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=patience_s)
        try:
            await super().startup(sockets)
        finally:
            vars(loop).pop("create_server", None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.announce_stop()
        await super().shutdown(sockets)


class _ToLog(logging.Handler):
    """uvicorn's own words, as lines of our log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = {"level": record.levelname, "message": record.getMessage().strip()}
        if record.exc_info is not None and record.exc_info[1] is not None:
            facts["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        self._log("http", **facts)


def connections_within(wanted: int) -> int:
    """So many of the connections wanted as the system has descriptors for, files put aside."""
    try:
        import resource
    except ImportError:  # not everywhere; then there is no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    enough = wanted + OTHER_FILES
    if soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - OTHER_FILES))


def serve(service: Service, address: Address) -> None:
    """Serve until told to stop; then finish what was accepted."""
    limits = service.settings.limits
    limits = replace(limits, connections=connections_within(limits.connections))
    config = uvicorn.Config(
        make_app(service),
        host=address.host,
        port=address.port,
        http=bounded_protocol(limits),
        ws="none",
        loop="auto",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        backlog=2048,
        limit_concurrency=limits.connections + OTHER_FILES // 2,  # where nobody could be sent off
        timeout_keep_alive=30,
        timeout_graceful_shutdown=20,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=str(address.tls_key) if address.tls_key else None,
        ssl_ca_certs=str(address.client_ca) if address.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if address.client_ca else ssl.CERT_NONE,
    )
    logger, handler = logging.getLogger("uvicorn.error"), _ToLog(service.log)
    logger.addHandler(handler)
    # uvicorn handles the signal, and afterwards sends it once more to whom it had belonged: that
    # would end the process before its store is closed.
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        _Server(config, service).run()
    finally:
        signal.signal(signal.SIGTERM, former)
        logger.removeHandler(handler)
