"""Proxies in front of the server: whose word about the client is taken, and what they say.

Anybody can write ``X-Forwarded-For``. It counts only in requests that come from the address of a
proxy that the operator named. Such a proxy must replace or extend what its client sent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import final

from anarchic.errors import ConfigError

FORWARDED = b"x-forwarded-for"
SUBJECT = b"x-client-subject"  # of the certificate that the proxy has verified: CN=ann,O=...
# As a worker may be called. RFC 4514: a comma that belongs to a value is written as \\,
_COMMON_NAME = re.compile(r"(?:^|(?<!\\)[,+]) ?CN=([A-Za-z0-9_.@-]{1,64})(?=$|[,+])")
Headers = Iterable[tuple[bytes, bytes]]


@final
class Proxies:
    """The addresses of proxies, separated by commas: 127.0.0.1, ::1, 10.0.0.0/8."""

    def __init__(self, addresses: str | None = None) -> None:
        self._networks = [] if addresses is None else [*map(_network, addresses.split(","))]

    def __contains__(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)  # an IPv4 client at an IPv6 socket
        return any((mapped or found) in network for network in self._networks)

    def client(self, peer: str, headers: Headers) -> str:
        """Whose request it is: the last address on its way that is not a proxy's own."""
        if peer not in self:
            return peer
        came = b",".join(value for name, value in headers if name == FORWARDED)
        for part in reversed(came.decode("latin-1").split(",")):
            address = part.strip()
            try:
                ipaddress.ip_address(address)
            except ValueError:  # what stands before it was written by nobody we know
                break
            if address not in self:
                return address
        return peer

    def certificate_names(self, peer: str, headers: Headers) -> frozenset[str]:
        """The common name in the certificate that the client showed to the proxy, if it has one."""
        if peer not in self:
            return frozenset()
        subjects = [value.decode("latin-1") for name, value in headers if name == SUBJECT]
        names = [name for subject in subjects for name in _COMMON_NAME.findall(subject)]
        # Of two neither is sure.
        return frozenset(names if len(subjects) == len(names) == 1 else ())


def _network(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        network = ipaddress.ip_network(address.strip())
    except ValueError as error:
        raise ConfigError(
            f"--trusted-proxy takes addresses or networks such as 127.0.0.1 or 10.1.0.0/16, "
            f"separated by commas; got {address.strip()!r}."
        ) from error
    if network.prefixlen == 0:
        raise ConfigError(
            f"--trusted-proxy {address.strip()} would let everybody write the address of their "
            "choice: give the proxy's own address."
        )
    return network
