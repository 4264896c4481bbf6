"""Listening: uvicorn, with the head of every request bounded in size and in time."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anarchic.errors import ConfigError
from anarchic.server.app import make_app
from anarchic.server.service import Service
from anarchic.server.settings import Limits


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
    """uvicorn's protocol, less its patience with heads that never end."""

    class BoundedProtocol(HttpToolsProtocol):
        _head_bytes = 0
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            if self._head_timer is not None:
                self._head_bytes += len(data)
                in_head = data if self._head_bytes <= limits.header_bytes else None
                end = data.find(b"\r\n\r\n") if in_head is None else 0
                if in_head is None and (end < 0 or end > limits.header_bytes):
                    self._hang_up(b"431 Request Header Fields Too Large")
                    return
            super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._head_timer is None:
                self._await_head()

        def on_headers_complete(self) -> None:
            self._head_is_there()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_there()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(
                limits.header_s, self._hang_up, b"408 Request Timeout"
            )

        def _head_is_there(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _hang_up(self, status: bytes) -> None:
            self._head_is_there()
            if not self.transport.is_closing():
                self.transport.write(
                    b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
                self.transport.close()

    return BoundedProtocol


def serve(service: Service, address: Address) -> None:
    """Serve until told to stop; then finish what was accepted."""
    config = uvicorn.Config(
        make_app(service),
        host=address.host,
        port=address.port,
        http=bounded_protocol(service.settings.limits),
        loop="auto",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=2048,
        limit_concurrency=service.settings.limits.connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=20,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=str(address.tls_key) if address.tls_key else None,
        ssl_ca_certs=str(address.client_ca) if address.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if address.client_ca else ssl.CERT_NONE,
    )
    uvicorn.Server(config).run()
