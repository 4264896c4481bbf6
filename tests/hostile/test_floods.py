"""Floods of connections: uploads in progress go on, and the store keeps its descriptors."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line, push_head
from tests.chaos.updates import encoded
from tests.hostile.attackers import request_head
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits by sh, looks into /proc"),
]

FILES = 300  # descriptors that the server may have; 172 connections
FLOOD = int(os.environ.get("ANARCHIC_FLOOD", "900"))


@contextmanager
def limited(place, *words):
    """A server with few descriptors, so that a small flood is one."""
    init = write_model(place / "model.safetensors")
    server = ServerProcess(str(place / "run.db"), init, place / "log", "--open-enrolment", *words)
    server.start(under=("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh"))
    try:
        yield server
    finally:
        server.kill()


def idle(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0))


def descriptors(server):
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


@pytest.mark.tried(
    "600 idle connections per second during uploads",
    before="uploads in progress were closed",
    now="idle connections make room, the uploads are accepted",
)
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_idle_connections_do_not_push_out_uploads(tmp_path, source):
    with limited(tmp_path) as server, ExitStack() as lines:
        server.await_ready()
        uploads = {}
        for number in range(8):
            body = encoded(LAYOUT, f"ann{number}", "1")
            line = lines.enter_context(Line(server.port))
            line.send(push_head(len(body)))
            uploads[line] = body
        time.sleep(0.2)
        for sent in range(FLOOD):
            lines.enter_context(idle(server.port, source))
            if sent % 90 == 0:  # a little of each upload now and then
                at = sent // 90 * 50
                for line, body in uploads.items():
                    line.send(body[at : at + 50])
            time.sleep(1 / 600)
        at = (FLOOD - 1) // 90 * 50 + 50
        for line, body in uploads.items():
            line.send(body[at:])
            assert line.answer().status == 202
        assert descriptors(server) <= FILES - 40  # some are left for the store


def half_a_push(port, source):
    line = idle(port, source)
    line.sendall(push_head(1000) + bytes(100))
    return line


def stream(port, source):
    line = idle(port, source)
    line.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return line


def check_served(server, name):
    with Line(server.port, timeout_s=5) as line:
        assert line.get("/healthz").status == 200
        assert line.push(encoded(LAYOUT, name, "1")).status == 202


def accepted_at_most(server):
    """How many descriptors the server has while more connect than it keeps."""
    with ExitStack() as lines:
        for _ in range(FILES):
            lines.enter_context(idle(server.port, "127.0.0.2"))
            time.sleep(1 / 600)
        check_served(server, f"ann{time.monotonic_ns()}")
        return descriptors(server)


@pytest.mark.tried(
    "four times 400 half-sent updates from one address, then closed",
    before="no answer to others meanwhile, and for good after the third time",
    now="others are served meanwhile, and as many connections are kept as before",
)
def test_half_sent_updates_cost_no_connections(tmp_path):
    with limited(tmp_path) as server:
        server.await_ready()
        before = accepted_at_most(server)
        for number in range(4):
            with ExitStack() as lines:
                for sent in range(400):
                    lines.enter_context(half_a_push(server.port, "127.0.0.2"))
                    if sent % 4 == 0:
                        time.sleep(1 / 400)
                check_served(server, f"bob{number}")
        until(lambda: descriptors(server) < before - 100)
        assert accepted_at_most(server) >= before - 5


@pytest.mark.tried(
    "200 streams of events from one address, as many as there are connections",
    before="nobody else was answered while they were open",
    now="the oldest streams make room, others are served",
)
def test_streams_of_events_make_room(tmp_path):
    with limited(tmp_path) as server, ExitStack() as lines:
        server.await_ready()
        for _ in range(200):
            lines.enter_context(stream(server.port, "127.0.0.2"))
        time.sleep(0.5)
        check_served(server, "ann")


@pytest.mark.tried(
    "half-sent updates, each from another address, during three uploads",
    before="the uploads were closed, since they came from one address",
    now="those that send nothing make room, the uploads are accepted",
)
def test_half_sent_updates_of_many_addresses_do_not_push_out_uploads(tmp_path):
    with limited(tmp_path) as server, ExitStack() as lines:
        server.await_ready()
        uploads = {}
        for number in range(3):
            uploads[lines.enter_context(Line(server.port))] = encoded(LAYOUT, f"ann{number}", "1")
        for line, body in uploads.items():
            line.send(push_head(len(body)))
        for sent in range(400):
            source = f"127.0.{2 + sent // 250}.{1 + sent % 250}"
            lines.enter_context(half_a_push(server.port, source))
            if sent % 40 == 0:
                for line, body in uploads.items():
                    line.send(body[sent // 40 : sent // 40 + 1])
            time.sleep(1 / 400)
        for line, body in uploads.items():
            line.send(body[10:])
            assert line.answer().status == 202


@pytest.fixture
def certified(tmp_path):
    """Options for TLS, and a context that trusts the server."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    words = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    return words, context


def pushed(port, context, body):
    """The status of a push over TLS; 0 if there is no answer."""
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        line.sendall(request_head(len(body)) + body)
        return int(line.recv(4096).split()[1])
    return 0


@pytest.mark.tried(
    "12,000 connections that never begin their TLS handshake",
    before="no descriptor was left for the store",
    now="the oldest of them make room, updates are accepted all the while",
)
def test_silent_connections_leave_descriptors_for_the_store(tmp_path, certified):
    words, context = certified
    with limited(tmp_path, *words) as server, ExitStack() as lines:
        until(lambda: pushed(server.port, context, encoded(LAYOUT, "first", "1")) == 202)
        told = []
        for sent in range(FLOOD):
            lines.enter_context(idle(server.port))
            if sent % 300 == 299:
                body = encoded(LAYOUT, f"ann{sent}", "1")
                told.append(pushed(server.port, context, body))
                assert descriptors(server) <= FILES - 40
        assert set(told) == {202}, told
