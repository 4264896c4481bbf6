"""Failed handshakes are logged now and then, and the other side is told why."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest

from anarchic.server.tls import LOG_S, log_handshakes

trustme = pytest.importorskip("trustme")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLError | None:
    """What the client meets in a handshake and the first read after it, all in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for _ in range(3):
        try:
            here.do_handshake()
            here.read(1)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return error
        with suppress(ssl.SSLWantReadError):
            there.do_handshake()
    return None


def test_a_kind_of_failure_is_logged_once_and_then_counted():
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    authority.configure_trust(client)
    server.verify_mode = ssl.CERT_REQUIRED
    lines, now = [], [0.0]
    log_handshakes(server, lambda event, **facts: lines.append((event, facts)), lambda: now[0])
    for _ in range(5):
        told = shake_hands(server, client)
        assert told is not None  # the alert that asyncio would have dropped
        assert told.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    now[0] = LOG_S
    shake_hands(server, client)
    assert [(event, facts["kind"], facts["count"]) for event, facts in lines] == [
        ("handshake_failed", "PEER_DID_NOT_RETURN_A_CERTIFICATE", 1),
        ("handshake_failed", "PEER_DID_NOT_RETURN_A_CERTIFICATE", 5),
    ]
    authority.issue_cert("ann@example.org").configure_cert(client)
    assert shake_hands(server, client) is None
    assert len(lines) == 2
