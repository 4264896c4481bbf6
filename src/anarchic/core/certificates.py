"""From when to when the certificates in a PEM file are valid, and for whom they are.

Python's ``ssl`` tells these facts only of certificates that it has verified, that is of valid
ones. So they are read here, from the fixed place that X.509 (RFC 5280, section 4.1) gives them.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from os import PathLike
from pathlib import Path
from typing import NamedTuple

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME, _BMP_TEXT = 0xA0, 0x17, 0x1E  # tags
_BOOLEAN, _EXTENSIONS, _DNS, _ADDRESS = 0x01, 0xA3, 0x82, 0x87
_ALTERNATIVES = bytes((0x55, 0x1D, 17))  # 2.5.29.17
_COMMON_NAME = bytes((0x55, 4, 3))  # 2.5.4.3


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


def alternative_names(path: str | PathLike[str]) -> list[str]:
    """The DNS names and addresses that the first certificate in a file is made for."""
    try:
        found = _PEM.search(Path(path).read_text(encoding="latin-1"))
        return [] if found is None else _alternatives(ssl.PEM_cert_to_DER_cert(found[0]))
    except (OSError, ValueError, IndexError):
        return []


def is_for(names: Sequence[str], wanted: str) -> bool:
    """Whether a client that asks for a name takes a certificate for these; ``*`` is one label."""
    wanted = wanted.lower().rstrip(".")
    below = f"*.{wanted.partition('.')[2]}"
    return any(name.lower() in (wanted, below) for name in names)


def _alternatives(der: bytes) -> list[str]:
    _, validity = _signed(der)
    _, _, at = _element(der, validity)
    for _ in ("subject", "public key"):
        _, _, at = _element(der, at)
    tag, start, at = _element(der, at)
    while tag != _EXTENSIONS:  # unique identifiers, as nobody has them
        tag, start, at = _element(der, at)
    _, at, end = _element(der, start)
    while at < end:
        _, inside, at = _element(der, at)
        _, first, last = _element(der, inside)
        if der[first:last] == _ALTERNATIVES:
            tag, start, stop = _element(der, last)
            if tag == _BOOLEAN:  # whether it is critical
                _, start, stop = _element(der, stop)
            return list(_general_names(der, start))
    return []


def _general_names(der: bytes, at: int) -> Iterator[str]:
    _, at, end = _element(der, at)
    while at < end:
        tag, first, at = _element(der, at)
        if tag == _DNS:
            yield der[first:at].decode("ascii", "replace")
        elif tag == _ADDRESS:
            yield str(ip_address(der[first:at]))


def common_names(der: bytes) -> tuple[str, str]:
    """For whom a certificate says that it is, and who signed it; empty where that is not told.

    Anybody can have made it: neither is true before it was verified.
    """
    try:
        issuer, validity = _signed(der)
        _, _, subject = _element(der, validity)
        return _common_name(der, subject), _common_name(der, issuer)
    except (ValueError, IndexError):
        return "", ""


def _signed(der: bytes) -> tuple[int, int]:
    """Where in a certificate the name of the issuer stands, and the validity behind it."""
    _, at, _ = _element(der, 0)  # the certificate
    _, at, _ = _element(der, at)  # what is signed of it
    tag, _, end = _element(der, at)
    if tag == _VERSION:
        at = end
    for _ in ("serial number", "signature"):
        _, _, at = _element(der, at)
    return at, _element(der, at)[2]


def _validity(der: bytes) -> Validity:
    _, validity = _signed(der)
    _, at, _ = _element(der, validity)
    _, _, middle = _element(der, at)
    return Validity(_time(der, at), _time(der, middle))


def _common_name(der: bytes, at: int) -> str:
    """Of a name: sets of pairs, each of what it is and a text."""
    _, at, end = _element(der, at)
    while at < min(end, len(der)):
        _, pair, at = _element(der, at)
        _, kind, _ = _element(der, pair)
        _, start, stop = _element(der, kind)
        if der[start:stop] == _COMMON_NAME:
            tag, start, stop = _element(der, stop)
            return der[start:stop].decode("utf-16-be" if tag == _BMP_TEXT else "utf-8", "replace")
    return ""


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
