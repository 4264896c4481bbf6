"""Requests behind one another on a connection: one at a time, at no cost to others."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import pytest

from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line, push_head
from tests.chaos.updates import encoded
from tests.waiting import until

pytestmark = pytest.mark.slow  # a server process

STATUS = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nPad: 1234567890123\r\n\r\n"
assert len(STATUS) == 64  # a power of two: no piece that is read ends within a head
EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("pipelining")
    init = write_model(place / "model.safetensors")
    words = ("--open-enrolment",)
    with ServerProcess(str(place / "run.db"), init, place / "log", *words) as server:
        yield server


def connected(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def healthy_s(server):
    began = time.monotonic()
    with Line(server.port) as line:
        assert line.get("/healthz").status == 200
    return time.monotonic() - began


@pytest.mark.tried(
    "4 MB of GET requests in one piece, answers unread",
    before="484 MB of memory, no answer to anybody for 4.8 s",
    now="less than 30 MB, others are answered within a second",
)
def test_many_requests_at_once_cost_neither_memory_nor_time(server):
    before_mb = server.rss_mb()
    data, sent = memoryview(STATUS * (4_000_000 // len(STATUS))), 0
    slowest, most_mb, until_s = 0.0, 0.0, time.monotonic() + 3.0
    with connected(server) as flood:
        flood.setblocking(False)
        while time.monotonic() < until_s:
            with suppress(OSError):  # it would block, or was closed
                sent += flood.send(data[sent : sent + (1 << 15)])
            slowest = max(slowest, healthy_s(server))
            most_mb = max(most_mb, server.rss_mb())
    assert sent > 100_000  # as much as fits into the system's buffers
    assert slowest < 1.0
    assert most_mb - before_mb < 30


@pytest.mark.tried(
    "260 event streams with a second request behind each",
    before="/v1/events answered 503 for good",
    now="served again once the streams are closed",
)
def test_streams_with_a_request_behind_them_end_with_their_connections(server):
    lines = []
    for _ in range(260):
        lines.append(connected(server))
        lines[-1].sendall(EVENTS + EVENTS)
    for line in lines:
        assert line.recv(12) in (b"HTTP/1.1 200", b"HTTP/1.1 503")
    for line in lines:
        line.close()

    def served():
        with connected(server) as line:
            line.sendall(EVENTS)
            return line.recv(12) == b"HTTP/1.1 200"

    until(served)


@pytest.mark.tried(
    "a valid POST with one stray byte behind it",
    before="answered 400, and yet stored",
    now="answered 202; the connection is closed after that",
)
@pytest.mark.parametrize("stray", [b"\0", b"x\r\n\r\n", b"\r\n\0"])
def test_a_stray_byte_does_not_answer_for_the_request_before_it(server, stray):
    body = encoded(LAYOUT, "ann", f"stray {stray.hex()}".replace(" ", "-"))
    with Line(server.port) as line:
        line.send(push_head(len(body)) + body + stray)
        answer = line.answer()
        assert answer.status in (202, 429), answer  # the share of one worker is small
        assert line.hung_up(5)


def test_requests_behind_one_another_are_answered_in_order(server):
    body = encoded(LAYOUT, "bob", "1")
    push = push_head(len(body)) + body
    wrong = b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with Line(server.port) as line:
        for data in (push + wrong + STATUS + push, STATUS + push[:500]):
            line.send(data)
        line.send(push[500:])
        told = [line.answer().status for _ in range(6)]
    assert told in ([202, 404, 200, 200, 200, 200], [429, 404, 200, 429, 200, 429]), told


def test_the_rest_of_a_refused_body_is_not_a_request(server):
    """What follows an early answer belongs to the body, whatever it looks like."""
    with Line(server.port) as line:
        line.send(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        assert line.answer().status == 404
        line.send((STATUS * 3000)[:100_000])
        assert line.get("/healthz").json() == {"status": "ok"}
