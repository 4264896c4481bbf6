"""Web pages: what a browser sends on behalf of somebody else's page is refused.

A page can make the browser of whoever reads it send requests to servers that only that machine can
reach. Where a token is needed it has none. Elsewhere three things give it away. ``Origin`` names
the page's own server. A page cannot send ``application/octet-stream`` elsewhere without asking
first, and nobody answers that question here. And a page whose name was made to lead to this
machine (DNS rebinding) sends that name as ``Host``.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import final

from anarchic.server.refusals import Refusal
from anarchic.server.settings import Address, ServerSettings, is_loopback

BODY_TYPE = "application/octet-stream"


@final
class Origins:
    """Which names this server goes by: where it listens (``host``), and ``names`` that lead there.

    With ``any_host`` every ``Host`` will do: where a token is needed, or TLS proves the name.
    """

    def __init__(
        self, host: str = "", names: Iterable[str] = (), *, any_host: bool, https: bool = False
    ) -> None:
        self._scheme = "https" if https else "http"
        self._everywhere = host in ("0.0.0.0", "::")
        self._names = frozenset(map(_name, names))
        self._hosts = self._names | {_name(host)}
        self._any_host = any_host

    def check(self, headers: Mapping[str, str]) -> None:
        """Refuse a request that a page of another server has sent."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not (self._any_host or is_local(host) or _name(host) in self._hosts):
            raise Refusal(
                421,
                "wrong_host",
                f"This server does not go by the name {host[:100]!r}.",
                "Use its address, or have the operator add the name with --host-name.",
            )
        if origin is not None and not self._is_own(origin, host):
            raise Refusal(
                403,
                "foreign_origin",
                f"The request comes from a web page of {origin[:100]!r}, not of this server.",
                "Use a program, or have the operator add the page's name with --host-name.",
            )

    def url(self, host: str) -> str:
        """The address of this server, for others than the browser that has asked it as ``host``.

        Where that is this machine's own name for itself, it is the machine's address in its
        network, if the server listens there.
        """
        if not re.fullmatch(r"[\w.:\[\]-]{1,255}", host, re.ASCII):
            told = f"The Host header {host[:100]!r} is no address."
            raise Refusal(421, "wrong_host", told, "Send the address of this server.")
        if self._everywhere and is_loopback(_name(host)):
            port = host.rpartition(":")[2]
            host = _outward() + (f":{port}" if port.isdecimal() else "")
        return f"{self._scheme}://{host}"

    def _is_own(self, origin: str, host: str) -> bool:
        scheme, _, place = origin.lower().partition("://")
        default = {"http": ":80", "https": ":443"}.get(scheme, "")
        places = {host.lower(), host.lower().removesuffix(default)}
        return bool(default) and (place in places or _name(place) in self._names)


def origins_of(address: Address, settings: ServerSettings) -> Origins:
    """The names of a server that listens at an address."""
    any_host = address.tls_cert is not None or not settings.open_pull
    https = address.tls_cert is not None or address.trusted_proxy is not None
    return Origins(address.host, address.host_names, any_host=any_host, https=https)


def admin_origins_of(address: Address, *, tokens: bool) -> Origins:
    """The names of the listener for operators at an address."""
    any_host = address.tls_cert is not None or tokens
    return Origins(address.host, address.host_names, any_host=any_host)


def is_local(host: str) -> bool:
    """Whether no page of the internet can have this host.

    Rebinding needs a name that somebody registered: an address is none, nor is a name without a
    dot, such as that of a container. A program may send no host at all, a browser always does.
    """
    name = _name(host)
    if "." not in name or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _outward() -> str:
    """This machine's address in the network that leads outward; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation, RFC 5737
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _name(host: str) -> str:
    """A host without its port and brackets."""
    name, _, port = host.lower().rpartition(":")
    whole = host.lower() if not port.isdecimal() else name
    return whole.strip("[]").removesuffix(".")


def check_type(headers: Mapping[str, str]) -> None:
    """Refuse an update that is not sent as bytes."""
    given = headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != BODY_TYPE:
        told = f"The update has Content-Type {given[:100]!r}." if given else "No Content-Type came."
        raise Refusal(415, "wrong_type", told, f"Send 'Content-Type: {BODY_TYPE}'.")
