"""Failed handshakes are logged now and then, and the other side is told why."""

from __future__ import annotations

import json
import signal
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from anarchic.core.certificates import validities
from anarchic.server.settings import Address
from anarchic.server.tls import LOG_S, Certificate, log_handshakes
from tests.chaos.servers import ServerProcess, write_model
from tests.waiting import until

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


def issue(authority, path, days=300.0):
    """A certificate for this machine, with its key in the same file."""
    now = datetime.now(UTC)
    span = {"not_before": now - timedelta(9), "not_after": now + timedelta(days)}
    pem = authority.issue_cert("127.0.0.1", **span).private_key_and_cert_chain_pem
    path.write_bytes(pem.bytes())
    return path


def test_a_certificate_is_told_of_once_a_day_before_it_expires_and_when_it_has(tmp_path):
    path, lines, gauge = issue(trustme.CA(), tmp_path / "own", 31.5), [], []
    day, now = timedelta(days=1), [datetime.now(UTC)]
    address = Address(tls_cert=path, tls_key=path)
    certificate = Certificate(
        address, lambda event, **facts: lines.append(event), gauge.append, lambda: now[0]
    )
    assert gauge == [validities(path)[0].last.timestamp()]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for _ in range(4):  # quarters of the day
        certificate.look(context)
        now[0] += day / 4
    assert lines == []
    for _ in range(8):
        certificate.look(context)
        now[0] += day / 4
    assert lines == ["certificate_expires_soon"]
    now[0] = validities(path)[0].last - day / 2
    certificate.look(context)
    now[0] += day / 2 + timedelta(seconds=2)  # not a day later
    certificate.look(context)
    certificate.look(context)
    assert lines[1:] == ["certificate_expires_soon", "certificate_expired"]


def shown(port, authority):
    """The certificate that the server shows to a new connection."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        return line.getpeercert(binary_form=True)


def events(server):
    lines = [json.loads(line) for line in server.text().splitlines() if line.startswith("{")]
    return [line["event"] for line in lines]


@pytest.mark.slow
def test_a_hangup_loads_the_certificate_again_and_a_bad_one_changes_nothing(tmp_path):
    authority = trustme.CA()
    own = issue(authority, tmp_path / "own")
    words = ("--open-enrolment", "--tls-cert", str(own), "--tls-key", str(own))
    init = write_model(tmp_path / "model")
    server = ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *words)
    server.start()
    try:
        until(lambda: "listening" in events(server), 30)
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(server.port, trustme.CA())
        until(lambda: "handshake_failed" in events(server))
        assert '"address": "127.0.0.1"' in server.text()
        first = shown(server.port, authority)
        issue(authority, own)
        assert shown(server.port, authority) == first
        server.send(signal.SIGHUP)
        until(lambda: "certificate_loaded" in events(server))
        second = shown(server.port, authority)
        assert second != first
        expired = issue(authority, tmp_path / "expired", -1).read_text()
        begin = "-----BEGIN CERTIFICATE-----"
        key, another = own.read_text(), issue(authority, tmp_path / "another").read_text()
        mixed = key.partition(begin)[0] + begin + another.partition(begin)[2]
        for bad in ("no certificate", expired, mixed):
            before = events(server).count("certificate_not_loaded")
            own.write_text(bad)
            server.send(signal.SIGHUP)
            told = before + 1
            until(lambda told=told: events(server).count("certificate_not_loaded") == told)
            assert shown(server.port, authority) == second
        assert server.stop() == 0
        assert events(server)[-1] == "stopped"
    finally:
        if server.running:
            server.kill()


@pytest.mark.slow
def test_a_hangup_does_not_end_a_server_without_tls(tmp_path):
    init = write_model(tmp_path / "model")
    words = (str(tmp_path / "run.db"), init, tmp_path / "log", "--open-enrolment")
    with ServerProcess(*words) as server:
        until(lambda: "listening" in events(server))
        assert events(server).index("serving") < events(server).index("listening")
        server.send(signal.SIGHUP)
        until(lambda: "hangup_ignored" in events(server))
        assert server.stop() == 0
        assert events(server)[-1] == "stopped"
