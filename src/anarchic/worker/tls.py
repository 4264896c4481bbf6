"""TLS of a worker: its certificate files, and what is wrong when a handshake fails for good."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from os import PathLike

from anarchic.core.certificates import validities
from anarchic.core.reading import read_file
from anarchic.errors import ConfigError

Path = str | PathLike[str]
MAX_PEM = 1 << 20  # bytes
CLOCK = "or set the clock of this machine"

# Of OpenSSL, for a server's certificate that is not valid now. It is waited for: the operator will
# renew it, or the clock of a machine that has just started will be set.
_NOT_NOW = {
    9: f"The server's certificate is not valid yet: ask its operator for one that is, {CLOCK}.",
    10: f"The server's certificate has expired: ask its operator to renew it, {CLOCK}.",
}
# For one that does not verify at all; any other code means that the authority which signed it is
# not known here.
_SERVER = {
    62: "its certificate is for another name: use a URL with a name that the certificate has",
    64: "its certificate is for another address: use a URL with a name that the certificate has",
}
# Alerts with which a server refuses a worker's certificate; the first part that matches counts.
_WORKER = {
    "CERTIFICATE_REQUIRED": "it asks for a certificate of this worker",
    "UNKNOWN_CA": "it does not know the authority that signed the certificate of this worker",
    "CERTIFICATE_EXPIRED": "it says that the certificate of this worker has expired",
    "CERTIFICATE": "it refuses the certificate of this worker",
    "HANDSHAKE_FAILURE": "it ended the handshake, as TLS 1.2 does where a certificate is missing",
}


def make_context(
    ca_file: Path | None, client_cert: Path | None, client_key: Path | None
) -> ssl.SSLContext:
    """What a worker trusts and shows; refuses files that cannot be used, by their names."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # TLS errors are OSErrors too
        raise _unusable(f"ca_file {ca_file} (--ca-file)", error) from error
    if client_cert is None:
        return context
    try:
        context.load_cert_chain(client_cert, client_key)
    except OSError as error:
        if client_key is None and _lacks_key(client_cert):
            raise ConfigError(
                f"client_cert {client_cert} (--client-cert) holds a certificate and no private "
                "key: give the file of its key as client_key (--client-key)."
            ) from None
        named = f"client_cert {client_cert} (--client-cert)"
        if client_key is not None:
            named += f" with client_key {client_key} (--client-key)"
        raise _unusable(named, error) from error
    for own in validities(client_cert)[:1]:  # those of its authorities follow it
        if own.last < datetime.now(UTC):
            raise ConfigError(
                f"The certificate in client_cert {client_cert} (--client-cert) expired on "
                f"{own.last:%Y-%m-%d %H:%M} UTC: get a new one, {CLOCK}."
            )
    return context


def _lacks_key(pem: Path) -> bool:
    try:
        text = read_file(pem, most=MAX_PEM)
    except OSError:
        return False
    return b"BEGIN CERTIFICATE" in text and b"PRIVATE KEY" not in text


def _unusable(named: str, error: OSError) -> ConfigError:
    why = getattr(error, "reason", None) or error.strerror or str(error)
    return ConfigError(f"{named} cannot be used for TLS: {why}. Give files in PEM form.")


def not_valid_now(error: BaseException) -> str | None:
    """A sentence, if the server's certificate has expired or is not valid yet."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _NOT_NOW.get(cause.verify_code)
    return None


def refusal_of(error: BaseException) -> str | None:
    """Why asking again is no use, if one of the two sides refuses the other's certificate."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            if cause.verify_code in _NOT_NOW:
                return None
            unknown = (
                f"it does not prove who it is ({cause.verify_message}): give the certificate of "
                "its authority as ca_file (--ca-file)"
            )
            return _SERVER.get(cause.verify_code, unknown)
        reason = (cause.reason or "") if isinstance(cause, ssl.SSLError) else ""
        if "ALERT" in reason:
            for part, told in _WORKER.items():
                if part in reason:
                    return f"{told}: give one that it takes as client_cert (--client-cert)"
    return None


def hint(error: BaseException, scheme: str) -> str:
    """What may be wrong where a server hangs up without a word."""
    if any(getattr(cause, "reason", None) == "WRONG_VERSION_NUMBER" for cause in _causes(error)):
        return " If the server has no TLS, its URL begins with http://."
    if not any("disconnected" in str(cause) for cause in _causes(error)):
        return ""
    if scheme == "http":
        return " If the server has TLS, its URL begins with https://."
    return " If it asks workers for a certificate, give one as client_cert (--client-cert)."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
