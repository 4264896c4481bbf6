"""Look whether a server could listen at its address, and if workers would take its certificate."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from anarchic.core.certificates import alternative_names, is_for, validities
from anarchic.core.findings import Doubt
from anarchic.server.settings import Address, is_loopback
from anarchic.server.tls import check_tls

EVERYWHERE = ("0.0.0.0", "::", "")  # addresses that say nothing about how workers come


def check_address(address: Address) -> str:
    """Whether the port is free and the names lead here."""
    address.check_free()
    for name in address.host_names:
        try:
            socket.getaddrinfo(name, None)
        except OSError as error:
            raise Doubt(
                f"--host-name {name} leads nowhere from here ({error.strerror or error}): workers "
                "need it in the DNS, or in their hosts file."
            ) from error
    others = "" if address.admin is None else f" So is {address.admin_host}, {address.admin_port}."
    return f"{address.host}, port {address.port} is free.{others}"


def check_certificates(address: Address) -> str:
    """Whether workers will take the certificate."""
    if address.tls_cert is None:
        if is_loopback(address.host):
            return "Plain HTTP, for this machine or a proxy on it."
        raise Doubt(
            f"--insecure: on {address.host} tokens and updates travel readable. Give --tls-cert "
            "and --tls-key."
        )
    told: list[str] = []
    check_tls(address, lambda event, **facts: told.append(_certificate(event, facts)))
    told += _foreign(address)
    if told:
        raise Doubt(" ".join(told))
    until = [f", valid until {own.last:%Y-%m-%d}" for own in validities(address.tls_cert)[:1]]
    return f"{address.tls_cert} fits its key{''.join(until)}."


def _foreign(address: Address) -> list[str]:
    """Of the names by which workers come, as far as they are known: those it is not made for."""
    said = address.host not in EVERYWHERE and not is_loopback(address.host)
    known = [*address.host_names, *([address.host] if said else [])]
    made_for = alternative_names(str(address.tls_cert))
    wrong = [name for name in known if not is_for(made_for, name)]
    if not wrong:
        return []
    listed = ", ".join(made_for) or "no name (it has no subjectAltName)"
    return [
        f"{address.tls_cert} is for {listed}, not for {', '.join(wrong)}: workers that use that "
        "name refuse the server. Get a certificate with it."
    ]


def _certificate(event: str, facts: Mapping[str, Any]) -> str:
    if event == "certificate_expires_soon":
        return f"{facts['file']} expires in {facts['days']} days: renew it, then send SIGHUP."
    if event == "certificate_not_valid_yet":
        return f"{facts['file']} is valid from {facts['valid_from']} on: is the clock right?"
    return f"{event}: {', '.join(f'{name} {fact}' for name, fact in facts.items())}."
