"""Answers that come byte by byte or never: how long the worker of the SDK waits."""

import socket
import threading
import time

import numpy as np
import pytest

from anarchic.errors import WorkerError
from anarchic.worker import Connection, Worker
from anarchic.worker.task import FunctionTask
from tests.hostile.answers import HostileServer, answer, snapshot
from tests.hostile.impatient import wire_layout, worker
from tests.waiting import until


def slow_answers(server):
    begun = answer(snapshot(), length=10**9)
    return {
        "head": lambda line: server.trickle(line, b"HTTP/1.1 200 OK\r\nX: "),
        "body": lambda line: server.trickle(line, begun),
        "chunks": lambda line: server.trickle(
            line, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"
        ),
        "1xx": lambda line: server.flood(line, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 99),
        "early": lambda line: server.trickle(line, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    }


def requests_on_their_way():
    return [t for t in threading.enumerate() if t.name == "anarchic-request"]


@pytest.mark.tried(
    "an answer that comes byte by byte, or after endless 1xx answers",
    before="waited for as long as bytes came",
    now="given up after timeout_s, plus the time of its bytes at the least rate",
)
@pytest.mark.parametrize("kind", ["head", "body", "chunks", "1xx", "early"])
def test_a_whole_answer_has_a_deadline(kind):
    with HostileServer() as server:
        server.answers["GET"] = slow_answers(server)[kind]
        with worker(server, connection={"timeout_s": 0.5}) as someone:
            begun = time.monotonic()
            with pytest.raises(WorkerError, match=r"no whole answer after 0\.[5-9]"):
                someone.pull()
            assert time.monotonic() - begun < 5
            until(lambda: not requests_on_their_way(), 5)


def test_an_upload_that_is_not_read_has_a_deadline():
    with HostileServer() as server:
        tensors = {"x": [1 << 22]}
        server.answers["GET"] = answer(snapshot(tensors), Connection="close")
        with worker(server) as someone:
            someone.pull()
            server._head = lambda line: server.over.wait(30) and b""
            someone._channel._connection = Connection(timeout_s=0.5, least_rate=1e9)
            with pytest.raises(WorkerError):
                someone.push(np.ones(1 << 22, np.float32), local_steps=1, local_lr=0.1)


def test_a_line_that_is_slow_but_alive_is_waited_for():
    body = snapshot({"x": [50_000]})
    with HostileServer() as server:

        def steadily(line):
            line.sendall(answer(b"", length=len(body)))
            for start in range(0, len(body), 20_000):
                line.sendall(body[start : start + 20_000])
                time.sleep(0.1)

        server.answers["GET"] = steadily
        with worker(server, connection={"timeout_s": 0.3}) as someone:
            assert someone.pull().params.size == 50_000  # after a second


@pytest.mark.parametrize("kind", ["head", "body", "silence"])
def test_a_stop_is_noticed_whatever_the_network_does(kind, tmp_path):
    with HostileServer() as server:
        slow = {**slow_answers(server), "silence": lambda line: server.over.wait(30)}
        server.answers["POST"] = slow[kind]
        task = FunctionTask(wire_layout(), lambda x: (x + 1, 0.0, 1))
        patient = {"timeout_s": 60.0, "stop_s": 0.2}
        with worker(server, spool=tmp_path / "spool", connection=patient) as someone:
            ended = []
            running = threading.Thread(target=lambda: ended.append(someone.run(task)))
            running.start()
            until(lambda: any(head.startswith(b"POST") for head in server.heads), 10)
            someone.stop()
            running.join(5)
            assert ended[0].spooled == 1
            until(lambda: not requests_on_their_way(), 5)


def test_a_stop_is_noticed_while_a_name_is_looked_up(monkeypatch):
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(30))
    patient = Connection(timeout_s=60.0, stop_s=0.2)
    task = FunctionTask(wire_layout(), lambda x: (x, 0.0, 1))
    with Worker("http://example.org", name="ann", connection=patient) as someone:
        running = threading.Thread(target=someone.run, args=(task,))
        running.start()
        until(requests_on_their_way, 5)
        someone.stop()
        running.join(5)
        assert not running.is_alive()
    found.set()
    until(lambda: not requests_on_their_way(), 5)
