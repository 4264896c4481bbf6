"""Workers that stop in mid-work, trickle, or flood: training goes on with the others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import count

import pytest

from anarchic import Layout
from anarchic.server.accounts import new_token, put_account
from anarchic.server.store import open_store
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line, Unreachable, push_head
from tests.chaos.updates import encoded
from tests.waiting import until

pytestmark = pytest.mark.slow  # every test starts a server

STALLED, AT_WORK = 990, 10
M, PAUSE_S = 4, 0.1
VERSIONS = 30


def register(path, names):
    made = {name: new_token(name) for name in names}
    store = open_store(path)
    try:
        for _, account in made.values():
            put_account(store, account)
    finally:
        store.close()
    return {name: token for name, (token, _) in made.items()}


def work(port, name, stop, token=None):
    """Pull, take a moment, push; as workers do."""
    with Line(port) as line:
        for number in count():
            if stop.is_set():
                return
            model = line.get("/v1/model", *([f"Authorization: Bearer {token}"] if token else []))
            version = int(model.headers["x-anarchic-version"])
            stop.wait(PAUSE_S)
            answer = line.push(encoded(LAYOUT, name, str(number), base_version=version), token)
            assert answer.status in (202, 429), answer


def stall(port, number):
    """Pull, begin to push, and stop; the connection stays open, except for some."""
    line = Line(port)
    assert line.get("/v1/model").status == 200
    request = push_head(2000) + encoded(LAYOUT, f"stalled{number}", "1")
    if number % 3 == 0:
        line.close()
    elif number % 3 == 1:
        line.send(request[: 200 + number % 700])
    else:
        line.send(request[:40])  # in the middle of the head
    return line


def trickle(lines, stop):
    while not stop.wait(0.5):
        for line in lines:
            with suppress(Unreachable):
                line.send(b"\0")


def test_training_goes_on_while_some_workers_stall(tmp_path):
    init, store = write_model(tmp_path / "model.safetensors"), str(tmp_path / "run.db")
    names = [f"w{n}" for n in range(AT_WORK)]
    words = ("--open-enrolment", "--m", str(M))
    stop = threading.Event()
    with ServerProcess(store, init, tmp_path / "log", *words) as server:
        with ExitStack() as lines:
            stalled = [lines.enter_context(stall(server.port, n)) for n in range(STALLED)]
            threads = [threading.Thread(target=trickle, args=(stalled[1::9], stop))]
            threads += [
                threading.Thread(target=work, args=(server.port, name, stop)) for name in names
            ]
            for thread in threads:
                thread.start()
            try:
                until(lambda: server.status()["version"] >= VERSIONS, timeout_s=60)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
        assert server.stop() == 0
    opened = open_store(store)
    folded = Counter(row.worker for row in opened.trace() if row.order is not None)
    version = opened.run().version
    opened.close()
    assert set(folded) <= set(names)
    assert folded.total() == M * version >= M * VERSIONS


def test_a_flood_does_not_raise_a_workers_share(tmp_path):
    init, store = write_model(tmp_path / "model.safetensors"), str(tmp_path / "run.db")
    tokens = register(store, ["flood", "ann", "bob", "cid"])
    server = ServerProcess(store, init, tmp_path / "log", "--m", str(M))
    stop, refused = threading.Event(), Counter()
    with server:
        threads = [
            threading.Thread(target=work, args=(server.port, name, stop, tokens[name]))
            for name in ("ann", "bob", "cid")
        ]
        numbers = count()

        def flood():
            with Line(server.port) as line:
                while not stop.is_set():
                    id = f"{next(numbers)}"
                    answer = line.push(encoded(LAYOUT, "flood", id), tokens["flood"])
                    refused[answer.status] += 1

        threads += [threading.Thread(target=flood) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(3.0)
        stop.set()
        for thread in threads:
            thread.join()
        assert server.stop() == 0
    opened = open_store(store)
    made = Counter((row.version, row.worker) for row in opened.trace() if row.order is not None)
    opened.close()
    shares = [number for (_, worker), number in made.items() if worker == "flood"]
    assert refused[429] > refused[202] > 0
    assert max(shares) <= M // 2
    assert len(made) > 10


def test_slow_senders_do_not_block_others(tmp_path):
    """32 of them, who try again and again; 8 bodies at a time are read beyond their first piece."""
    layout = Layout.of({"weight": ((250_000,), "F32")})
    init = write_model(tmp_path / "model.safetensors", layout)
    words = ("--open-enrolment", "--m", "2")
    stop, longest = threading.Event(), 0.0

    def drip(number):
        body = encoded(layout, f"slow{number}", "1")
        while not stop.is_set():
            with Line(server.port) as line, suppress(Unreachable):
                line.send(push_head(len(body)) + body[:400_000])
                for at in range(400_000, len(body), 100):
                    if stop.wait(0.1):
                        return
                    line.send(body[at : at + 100])

    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *words) as server:
        threads = [threading.Thread(target=drip, args=(n,)) for n in range(32)]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        with Line(server.port, timeout_s=60) as line:
            for number in range(6):
                began = time.monotonic()
                assert line.push(encoded(layout, f"ann{number}", str(number))).status == 202
                longest = max(longest, time.monotonic() - began)
        stop.set()
        for thread in threads:
            thread.join()
        assert server.stop() == 0
    opened = open_store(tmp_path / "run.db")
    version = opened.run().version
    opened.close()
    sys.stdout.write(f"the slowest of six pushes beside 32 trickles took {longest:.1f} s\n")
    assert version == 3
    assert longest < 10


def test_a_revoked_token_is_refused_within_two_seconds(tmp_path):
    init, store = write_model(tmp_path / "model.safetensors"), str(tmp_path / "run.db")
    tokens = register(store, ["ann", "bob"])
    with ServerProcess(store, init, tmp_path / "log") as server, Line(server.port) as line:
        assert line.push(encoded(LAYOUT, "ann", "1"), tokens["ann"]).status == 202
        words = ("-m", "anarchic", "token", "revoke", "ann", "--store", store)
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        until = time.monotonic() + 2.0
        while (answer := line.push(encoded(LAYOUT, "ann", "1"), tokens["ann"])).status == 200:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert (answer.status, answer.json()["error"]) == (403, "revoked")
        assert line.push(encoded(LAYOUT, "bob", "1"), tokens["bob"]).status == 202


def test_the_server_closes_connections_whose_heads_never_end(tmp_path):
    init, store = write_model(tmp_path / "model.safetensors"), str(tmp_path / "run.db")
    words = ("--open-enrolment",)
    with ServerProcess(store, init, tmp_path / "log", *words) as server, ExitStack() as open_lines:
        lines = [open_lines.enter_context(Line(server.port)) for _ in range(50)]
        for line in lines:
            line.send(b"GET /v1/model HTTP/1.1\r\nHost: ")
        assert all(line.hung_up(20) for line in lines)
        with Line(server.port) as line:
            assert line.get("/v1/status", "X: " + "y" * 20_000).status == 431
