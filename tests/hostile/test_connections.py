"""Connections of clients that do nothing wrong, and yet what few others do."""

from __future__ import annotations

import gc
import time

import pytest

from anarchic.server.protocol import BoundedProtocol
from tests.chaos.talk import Line
from tests.server.test_protocol import served
from tests.waiting import until


@pytest.mark.tried(
    "a body with `Upgrade: h2c`, as `curl --http2` and Java send it over plain HTTP",
    before="answered 400, 'The body is shorter than it said.', and not stored",
    now="taken as if the header were not there",
)
@pytest.mark.parametrize("wish", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("cut", [-1, 20, 160, 50_000])
def test_a_wish_for_another_protocol_is_ignored(cut, wish, caplog):
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    head += b"Upgrade: %b\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 100000\r\n\r\n" % wish
    sent, following = head + b"z" * 100_000, b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    with served(header_bytes=2000) as port, Line(port) as line:
        for _ in range(2):
            line.send(sent[:cut])
            time.sleep(0.1)
            line.send(sent[cut:] + following)
            assert [line.answer().body, line.answer().body] == [b"100000", b"3"]
        assert line.get("/", "Connection: Upgrade", "Upgrade: h2c").body == b"0"
    assert not caplog.records


def protocols():
    """How many connections are in memory."""
    gc.collect()
    return sum(isinstance(each, BoundedProtocol) for each in gc.get_objects())


@pytest.mark.tried(
    "9,645 requests with different hosts, each refused, the answer only begun to be read",
    before="78 MB more memory: a connection that was reset stayed there for 30 s, with its request",
    now="less than 1 MB more: it is forgotten at once",
)
def test_a_connection_that_is_reset_is_forgotten():
    with served() as port:
        for _ in range(20):
            with Line(port) as line:
                line.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert line.receive(10) == b"HTTP/1.1 2"
                time.sleep(0.02)  # for the rest: to close with bytes unread is a reset
        until(lambda: protocols() < 5, timeout_s=3.0)  # uvicorn would keep it for five seconds
