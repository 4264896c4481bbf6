"""A real server of several runs: workers, new runs, a kill, and a run that is flooded."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.request import urlopen

import numpy as np
import pytest

from anarchic import Layout, Update, wire
from anarchic.errors import WorkerError
from anarchic.server.hosting import create_run, list_runs
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token
from anarchic.worker import Retry, Worker
from tests.chaos.servers import ROOT, free_port, write_model
from tests.waiting import until

pytestmark = pytest.mark.slow
LARGE = Layout.of({"weight": ((10_000,), "F32")})


@contextlib.contextmanager
def server_of(where, log, *options, port=0):
    port = port or free_port()
    command = [sys.executable, "-m", "anarchic", "serve", "--store", where, "--port", port]
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "src"))
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(word) for word in (*command, *options)], stdout=out, stderr=out, env=environment
        )
    try:
        until(lambda: health(port) is not None)
        yield port, process
    finally:
        process.kill()
        process.wait()


def health(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def push(worker, count):
    for _ in range(count):
        snapshot = worker.pull()
        worker.push(np.ones(snapshot.params.size, np.float32), local_lr=0.01)


def test_workers_of_two_runs_and_a_server_that_is_killed(tmp_path):
    init, runs, log = write_model(tmp_path / "m.safetensors"), tmp_path / "runs", tmp_path / "log"
    tokens = {}
    for name in ("one", "two"):
        create_run(name, runs, init, rules={"m": 1}, keep_payloads=True)
        tokens[name] = add_token(runs / f"{name}.db", "ann")
    with server_of(runs, log) as (port, process):
        url = f"http://127.0.0.1:{port}"
        with Worker(url, run="one", token=tokens["one"]) as ann:
            push(ann, 1)
        wrong = {
            "no valid token": {"run": "one", "token": tokens["two"]},
            "There is no run 'three'": {"run": "three", "token": tokens["one"]},
            "--run NAME": {"token": tokens["one"]},
        }
        for told, named in wrong.items():
            with Worker(url, **named) as stranger, pytest.raises(WorkerError, match=told):
                stranger.pull()
        create_run("three", runs, init, rules={"m": 1})
        token = add_token(runs / "three.db", "bob")
        until(lambda: health(port)["runs"] == 3, 10)
        with Worker(url, run="three", token=token) as bob:
            until(lambda: pulled(bob), 10)  # a token is noticed within a second
            push(bob, 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with server_of(runs, log, port=port) as (_, process):
        for name in ("one", "two"):
            with Worker(url, run=name, token=tokens[name]) as ann:
                push(ann, 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    found = {row.name: row.version for row in list_runs(runs)}
    assert found == {"one": 3, "two": 2, "three": 1}
    for name in ("one", "two"):
        with contextlib.closing(open_store(runs / f"{name}.db")) as store:
            assert replay(store).equal
    assert "Traceback" not in log.read_text()


def pulled(worker):
    with contextlib.suppress(WorkerError):
        return worker.pull(retry=Retry(tries=1))
    return None


def encoded(run, worker):
    direction = np.ones(LARGE.dim, np.float32)
    made = Update(worker, 0, 1, 1e-6, direction, id="0" * 12)
    body = wire.encode_update(LARGE, made, worker=worker)
    head = f"POST /v1/runs/{run}/updates HTTP/1.1\r\nhost: x\r\n"
    head += f"content-type: application/octet-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def send(port, run, worker, until_s, pause_s):
    """Push as fast as answers come, or at a pace; how many were accepted."""
    message, accepted, began = encoded(run, worker), 0, time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 30) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(10**9):
            if time.monotonic() > until_s:
                return accepted
            link.sendall(message.replace(b"0" * 12, b"%012d" % number, 1))
            accepted += b" 202 " in link.recv(65536)[:20]
            time.sleep(max(0.0, began + (number + 1) * pause_s - time.monotonic()))
    return accepted


def flood(port, stop_s):
    threads = [
        threading.Thread(target=send, args=(port, "flooded", f"eve{n}", stop_s, 0.0))
        for n in range(48)
    ]
    for thread in threads:
        thread.start()


def test_a_run_keeps_half_of_its_rate_while_another_is_flooded(tmp_path):
    wire.save_model(tmp_path / "m.safetensors", LARGE, np.zeros(LARGE.dim, np.float32))
    for name in ("flooded", "other"):
        create_run(name, tmp_path / "runs", tmp_path / "m.safetensors", rules={"m": 8})
    free = ("--open-enrolment", "--per-worker", "100000", "--updates-per-minute", "1e9")

    def pushed(port, run):
        """By four workers in two seconds, each with an update every 50 ms if it is answered."""
        found, until_s = [], time.monotonic() + 2.0
        threads = [
            threading.Thread(
                target=lambda n=n: found.append(send(port, "other", f"{run}{n}", until_s, 0.05))
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(found)

    with server_of(tmp_path / "runs", tmp_path / "log", *free) as (port, _):
        alone = pushed(port, "a")
        process = multiprocessing.get_context("spawn").Process(
            target=flood, args=(port, time.monotonic() + 8.0), daemon=True
        )
        process.start()
        with urlopen(f"http://127.0.0.1:{port}/v1/runs/flooded/status") as answer:
            before = json.load(answer)["updates"]["accepted"]
        time.sleep(3.0)
        beside = pushed(port, "b")
        with urlopen(f"http://127.0.0.1:{port}/v1/runs/flooded/status") as answer:
            flooded = json.load(answer)["updates"]["accepted"] - before
        process.kill()
        process.join()
    assert flooded > beside  # it was a flood
    assert beside >= alone / 2
