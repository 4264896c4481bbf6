"""TLS: the server's certificate is checked and loaded again, failed handshakes are logged."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from anarchic.core.certificates import Validity, common_names, validities
from anarchic.core.reading import printable
from anarchic.errors import ConfigError
from anarchic.server.connections import PEER
from anarchic.server.log import Log, Seldom
from anarchic.server.settings import Address

SOON = timedelta(days=30)
DAY = timedelta(days=1)  # how often a running server looks at its certificate
ASKED_S = 0.5  # how soon a request to load the certificate again is noticed
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
_HANDSHAKE, _CERTIFICATE = 22, 11  # numbers of TLS, for a record and a message
_BEGINNING = 4_096  # bytes of a certificate, in which its names stand
_TOLD = ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED")


def check_tls(address: Address, log: Log, now: datetime | None = None) -> None:
    """Refuse files that cannot be used and certificates that have expired; tell of those to be.

    One that is not valid yet is only told of: the clock of this machine may be behind.
    """
    if address.tls_cert is None:
        return
    now = now or datetime.now(UTC)
    _check_own(address, log, now)
    known = validities(address.client_ca) if address.client_ca is not None else []
    if known and all(authority.last < now for authority in known):
        raise ConfigError(
            f"The authority {address.client_ca} expired on {known[0].last:%Y-%m-%d %H:%M} UTC, so "
            "that no worker's certificate would be accepted: give a new one as --client-ca."
        )


def _check_own(address: Address, log: Log, now: datetime) -> Validity | None:
    """When the server's certificate is valid, if that can be read."""
    _check_files(address)
    assert address.tls_cert is not None
    for own in validities(address.tls_cert)[:1]:  # those of its authorities follow it
        if own.last < now:
            raise ConfigError(
                f"The certificate {address.tls_cert} expired on {own.last:%Y-%m-%d %H:%M} UTC, so "
                "that no worker would accept this server: renew it, and give the new one as "
                "--tls-cert."
            )
        if own.first > now:
            log("certificate_not_valid_yet", **_dates(address, own))
        if own.last < now + SOON:
            log("certificate_expires_soon", **_dates(address, own), days=(own.last - now).days)
        return own
    return None


def _dates(address: Address, own: Validity) -> dict[str, str]:
    dates = {"valid_from": str(own.first), "valid_until": str(own.last)}
    return {"file": str(address.tls_cert), **dates}


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


class Certificate:
    """The certificate of a running server: told of before it expires, loaded again when asked."""

    def __init__(
        self, address: Address, log: Log, expires: Callable[[float], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:  # fmt: skip
        self._address, self._log, self._expires, self._now = address, log, expires, now
        self._own: Validity | None = None  # of the one in use, not of what is in the file by now
        self._next = now()  # when to look again
        self._asked = False
        if address.tls_cert is not None:
            self._use(next(iter(validities(address.tls_cert)), None))

    def ask(self, *_: object) -> None:
        """Load it again soon. A signal handler: it does no more, whatever it interrupts."""
        self._asked = True

    async def watch(self, *contexts: ssl.SSLContext | None) -> None:
        while True:
            await asyncio.sleep(ASKED_S)
            self.look(*contexts)

    def look(self, *listening: ssl.SSLContext | None) -> None:
        asked, self._asked = self._asked, False
        contexts = [context for context in listening if context is not None]
        if asked and not contexts:
            told = "The server has no certificate to load again (--tls-cert); it goes on."
            self._log("hangup_ignored", reason=told)
        elif asked:
            self._load(contexts)
        now = self._now()
        if self._own is not None and now >= self._next:
            self._tell(self._own, now)

    def _load(self, contexts: Sequence[ssl.SSLContext]) -> None:
        """For connections that begin from now on. Files that cannot be used change nothing."""
        try:
            own = _check_own(self._address, self._log, self._now())
            cert, key = str(self._address.tls_cert), self._address.tls_key
            for context in contexts:
                context.load_cert_chain(cert, key, password="")
        except (ConfigError, OSError, ValueError) as error:
            kept = f"{error} The certificate in use stays."
            self._log("certificate_not_loaded", reason=kept)
            return
        self._use(own)
        self._log("certificate_loaded", **({} if own is None else _dates(self._address, own)))

    def _use(self, own: Validity | None) -> None:
        self._own = own
        if own is not None:
            self._expires(own.last.timestamp())
            self._next = _next_look(own, self._now())

    def _tell(self, own: Validity, now: datetime) -> None:
        renew = "Renew it, and send SIGHUP to this process."
        if own.last < now:
            self._log("certificate_expired", **_dates(self._address, own), remedy=renew)
        elif own.last < now + SOON:
            days = (own.last - now).days
            told = {**_dates(self._address, own), "days": days, "remedy": renew}
            self._log("certificate_expires_soon", **told)
        self._next = _next_look(own, now)


def _next_look(own: Validity, now: datetime) -> datetime:
    """A day later, or when the certificate has just expired."""
    return now + DAY if own.last < now else min(now + DAY, own.last + timedelta(seconds=1))


def names_in(connection: ssl.SSLObject | None) -> frozenset[str]:
    """For whom the other side's certificate is: its DNS names and e-mail addresses or, where it
    has neither, its one common name. Nobody, if there is none or it cannot be read."""
    try:
        found: Any = connection.getpeercert() if connection is not None else None
    except ValueError:  # such as a name that is no text
        return frozenset()
    found = found or {}
    others = [name for kind, name in found.get("subjectAltName", ()) if kind in ("DNS", "email")]
    common = [
        value for part in found.get("subject", ()) for kind, value in part if kind == "commonName"
    ]
    return frozenset(others or (common if len(common) == 1 else []))


def log_handshakes(
    context: ssl.SSLContext, log: Log, clock: Callable[[], float] = time.monotonic
) -> None:
    """Have the context log handshakes that fail: asyncio and uvloop drop them silently.

    Workers whose certificate is the reason are told so.
    """
    failures = _Failures(log, clock)
    later = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # once a handshake is over: not listened to
    later.verify_mode = context.verify_mode

    class Watched(ssl.SSLObject):
        failed: ssl.SSLError | None = None
        address: str
        certificate = b""  # the first that the worker showed, until the handshake is over

        def __new__(cls) -> Watched:
            made = super().__new__(cls)
            made.address = PEER.get()
            return made

        def do_handshake(self) -> None:
            if self.failed is not None:
                raise self.failed
            try:
                super().do_handshake()
                self.context, self.certificate = later, b""
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                failures.add(error, self.address, self.certificate)
                self.certificate = b""
                if error.reason not in _TOLD:
                    raise
                # The worker is to learn why: a loop that believes the handshake to go on sends
                # the alert which it would drop otherwise. It ends when the worker hangs up, with
                # the next byte, or when the time for a handshake is over.
                self.failed = error
                raise ssl.SSLWantReadError from error

    def listen(of: Any, direction: str, version: int, content: int, kind: int, data: bytes) -> None:
        if (direction, content, kind) == ("read", _HANDSHAKE, _CERTIFICATE):
            # Behind the lengths of the message, of the list and of the first certificate; in
            # TLS 1.3 also of what comes before the list, which a worker leaves empty.
            start = 11 if version == ssl.TLSVersion.TLSv1_3 else 10
            of.certificate = data[start : start + _BEGINNING]

    context.sslobject_class = Watched
    if context.verify_mode != ssl.CERT_NONE and hasattr(context, "_msg_callback"):
        # Not documented, and the only place where a certificate is seen that is then refused.
        context._msg_callback = listen


class _Failures:
    """Counts failed handshakes by kind, and logs each kind now and then."""

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        self._log, self._seldom = log, Seldom(1, LOG_S, clock)  # OpenSSL has few kinds

    def add(self, error: ssl.SSLError, address: str, certificate: bytes = b"") -> None:
        kind = error.reason or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            kind = f"{kind}: {error.verify_message}"
        left_out = self._seldom.take(kind)
        if left_out is None:
            return
        facts: dict[str, Any] = {"kind": kind, "count": left_out + 1, "address": address}
        if isinstance(error, ssl.SSLCertVerificationError):
            facts |= _claimed(certificate)
        meaning = next((told for part, told in _MEANINGS.items() if part in kind), str(error))
        self._log("handshake_failed", **facts, reason=meaning)


def _claimed(certificate: bytes) -> dict[str, str]:
    """For whom a refused certificate says it is, and who it says has signed it."""
    names = zip(("certificate", "issuer"), common_names(certificate), strict=True)
    return {kind: printable(name, most=100) for kind, name in names if name}
