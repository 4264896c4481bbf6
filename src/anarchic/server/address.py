"""Where a server listens."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from anarchic.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address, port and TLS files."""

    host: str = "127.0.0.1"
    port: int = 8780
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None  # workers must show a certificate that it signed
    insecure: bool = False  # listen on a public address without TLS all the same

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise ConfigError(f"A port is a number from 1 to 65535, got --port {self.port}.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate and its key.")
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigError("Client certificates need TLS: give a certificate and its key too.")
        for path in self.tls_files:
            if not path.is_file():
                raise ConfigError(f"There is no file {path}.")
        if not (self.tls_cert or self.insecure or _is_loopback(self.host)):
            raise ConfigError(
                f"{self.host} can be reached from elsewhere, and without TLS tokens and updates "
                "travel readable: give a certificate and its key, listen on 127.0.0.1 behind a "
                "proxy, or say --insecure."
            )

    @property
    def tls_files(self) -> list[Path]:
        """Certificate, key and authority, as far as they are given."""
        return [path for path in (self.tls_cert, self.tls_key, self.client_ca) if path is not None]

    def check_free(self) -> None:
        """Refuse an address that is taken, or that is not this machine's."""
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
            if os.name == "posix":  # elsewhere it would take the port from whoever has it
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise ConfigError(
                    f"Cannot listen on {self.host}, port {self.port}: {error.strerror}. Choose "
                    "another --port or --host, or stop the program that listens there."
                ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
