"""The log on a full disk, or in a pipe that nobody reads: the server goes on."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded

JUNK = 605
pytestmark = pytest.mark.slow


class Unread(ServerProcess):
    def text(self):
        return "(its log cannot be read)"


@contextmanager
def serving(tmp_path, log):
    options = ("--open-enrolment", "--m", "1")
    init = write_model(tmp_path / "model.safetensors")
    with Unread(str(tmp_path / "run.db"), init, Path(log), *options) as server:
        yield server


def pushed(server, id):
    """Push an update and wait for the version that it makes."""
    with Line(server.port, 5.0) as line:
        before = line.get("/v1/status").json()["version"]
        assert line.push(encoded(LAYOUT, "ann", id)).status == 202
        until = time.monotonic() + 10
        while (status := line.get("/v1/status").json())["version"] == before:
            assert time.monotonic() < until, status
            time.sleep(0.01)
        assert status["leads"] is True
        assert line.get("/healthz").status == 200


@pytest.mark.tried(
    "the log on a full disk",
    before="the aggregator's thread ended at its first line, and no version was made again",
    now="every update makes its version; lines are lost",
)
def test_a_full_disk_under_the_log_stops_nothing(tmp_path):
    with serving(tmp_path, "/dev/full") as server:
        for number in range(3):
            pushed(server, str(number))
        assert server.stop() == 0


@pytest.mark.tried(
    "stderr in a pipe that nobody reads, and 605 junk requests",
    before="the event loop hung in a log line and answered nobody",
    now="everybody is answered, and versions are made; lost lines are counted",
)
def test_a_pipe_that_nobody_reads_stops_nothing(tmp_path):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with (
        open(reading, "rb", buffering=0) as pipe,
        open(writing, "wb", buffering=0) as ours,
        serving(tmp_path, f"/proc/{os.getpid()}/fd/{writing}") as server,
    ):
        for end in (reading, writing):  # the server has opened an end of its own
            os.set_blocking(end, False)
        fill(ours)
        for _ in range(JUNK):
            with Line(server.port, 5.0) as line:
                line.send(b"\x16\x03\x01 nonsense\r\n\r\n")
                assert line.answer().status == 400
        pushed(server, "1")
        text, until = b"", time.monotonic() + 10
        while b'"log_limited"' not in text and time.monotonic() < until:
            text += pipe.read(1 << 16) or b""
            time.sleep(0.02)
        fill(ours)
        assert server.stop(timeout_s=15.0) == 0  # not waiting for a reader
    told = [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]
    counted = sum(line["events"] for line in told if line["event"] == "log_limited")
    assert counted >= JUNK / 2


def fill(pipe):
    while pipe.write(b"x" * 1000 + b"\n"):
        pass
