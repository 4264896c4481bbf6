"""TLS: the server's own certificate is checked at the start, failed handshakes are logged."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from anarchic.core.certificates import validities
from anarchic.errors import ConfigError
from anarchic.server.log import Log
from anarchic.server.settings import Address

SOON = timedelta(days=30)
LOG_S = 60.0  # one line per kind of failed handshake and this many seconds

# Reasons of OpenSSL, and what they mean on this side; the first that is part of the reason counts.
_MEANINGS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the worker showed no certificate: it needs --client-cert",
    "CERTIFICATE_VERIFY_FAILED": "the worker's certificate is refused",
    "ALERT_UNKNOWN_CA": "the worker does not know the authority that signed this server's "
    "certificate: it needs --ca-file",
    "ALERT_CERTIFICATE_EXPIRED": "the worker says that this server's certificate has expired",
    "ALERT_BAD_CERTIFICATE": "the worker refuses this server's certificate: it is for another name",
    "ALERT_CERTIFICATE": "the worker refuses this server's certificate",
    "HTTP_REQUEST": "plain HTTP came: the worker's URL must begin with https://",
}
_TOLD = ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED")


def check_tls(address: Address, log: Log, now: datetime | None = None) -> None:
    """Refuse files that cannot be used and certificates that have expired; tell of those to be.

    One that is not valid yet is only told of: the clock of this machine may be behind.
    """
    if address.tls_cert is None:
        return
    _check_files(address)
    now = now or datetime.now(UTC)
    for own in validities(address.tls_cert)[:1]:  # those of its authorities follow it
        told = {"file": str(address.tls_cert), "valid_from": str(own.first)}
        told["valid_until"] = str(own.last)
        if own.last < now:
            raise ConfigError(
                f"The certificate {address.tls_cert} expired on {own.last:%Y-%m-%d %H:%M} UTC, so "
                "that no worker would accept this server: renew it, and give the new one as "
                "--tls-cert."
            )
        if own.first > now:
            log("certificate_not_valid_yet", **told)
        if own.last < now + SOON:
            log("certificate_expires_soon", **told, days=(own.last - now).days)
    known = validities(address.client_ca) if address.client_ca is not None else []
    if known and all(authority.last < now for authority in known):
        raise ConfigError(
            f"The authority {address.client_ca} expired on {known[0].last:%Y-%m-%d %H:%M} UTC, so "
            "that no worker's certificate would be accepted: give a new one as --client-ca."
        )


def _check_files(address: Address) -> None:
    """An encrypted key is refused too: nobody may be there to be asked for its password."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(address.tls_cert), address.tls_key, password="")
        if address.client_ca is not None:
            context.load_verify_locations(address.client_ca)
    except OSError as error:  # TLS errors are OSErrors too
        files = ", ".join(map(str, address.tls_files))
        why = getattr(error, "reason", None) or error.strerror or error
        raise ConfigError(
            f"TLS cannot be set up with {files}: {why}. Give PEM files, and the key that belongs "
            "to the certificate, not encrypted."
        ) from error


def log_handshakes(
    context: ssl.SSLContext, log: Log, clock: Callable[[], float] = time.monotonic
) -> None:
    """Have the context log handshakes that fail: asyncio and uvloop drop them silently.

    Workers whose certificate is the reason are told so.
    """
    failures = _Failures(log, clock)

    class Watched(ssl.SSLObject):
        failed: ssl.SSLError | None = None

        def do_handshake(self) -> None:
            if self.failed is not None:
                raise self.failed
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                failures.add(error)
                if error.reason not in _TOLD:
                    raise
                # The worker is to learn why: a loop that believes the handshake to go on sends
                # the alert which it would drop otherwise. It ends when the worker hangs up, with
                # the next byte, or when the time for a handshake is over.
                self.failed = error
                raise ssl.SSLWantReadError from error

    context.sslobject_class = Watched


class _Failures:
    """Counts failed handshakes by kind, and logs each kind now and then."""

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        self._log, self._clock = log, clock
        self._count: Counter[str] = Counter()  # since the kind was logged last
        self._logged: dict[str, float] = {}  # OpenSSL has few kinds

    def add(self, error: ssl.SSLError) -> None:
        kind = error.reason or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            kind = f"{kind}: {error.verify_message}"
        self._count[kind] += 1
        now = self._clock()
        if now < self._logged.get(kind, now - LOG_S) + LOG_S:
            return
        facts: dict[str, Any] = {"kind": kind, "count": self._count.pop(kind)}
        meaning = next((told for part, told in _MEANINGS.items() if part in kind), str(error))
        self._log("handshake_failed", **facts, reason=meaning)
        self._logged[kind] = now
