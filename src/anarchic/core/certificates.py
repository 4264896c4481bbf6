"""From when to when the certificates in a PEM file are valid.

Python's ``ssl`` tells these dates only of certificates that it has verified, that is of valid
ones. So they are read here, from the fixed place that X.509 (RFC 5280, section 4.1) gives them.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import NamedTuple

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17  # tags


class Validity(NamedTuple):
    """The first and the last moment at which a certificate is valid."""

    first: datetime
    last: datetime


def validities(path: str | PathLike[str]) -> list[Validity]:
    """Of each certificate in a file, in its order; nothing where they cannot be read."""
    try:
        text = Path(path).read_text(encoding="latin-1")
        return [_validity(ssl.PEM_cert_to_DER_cert(found)) for found in _PEM.findall(text)]
    except (OSError, ValueError, IndexError):
        return []


def _validity(der: bytes) -> Validity:
    _, at, _ = _element(der, 0)  # the certificate
    _, at, _ = _element(der, at)  # what is signed of it
    tag, _, end = _element(der, at)
    if tag == _VERSION:
        at = end
    for _ in ("serial number", "signature", "issuer"):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)
    _, _, middle = _element(der, at)
    return Validity(_time(der, at), _time(der, middle))


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the element at a place, where its contents begin, and where they end."""
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        at, length = at + size, int.from_bytes(der[at : at + size], "big")
    return tag, at, at + length


def _time(der: bytes, at: int) -> datetime:
    tag, start, end = _element(der, at)
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(der[start:end].decode("ascii"), form).replace(tzinfo=UTC)
