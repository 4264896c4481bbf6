"""Answers that no honest server gives, to a process of ``anarchic work``."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.hostile.answers import HostileServer, answer, snapshot
from tests.waiting import until

DIGITS = {"bias": [10], "weight": [10, 64]}  # the model of --task digits:1/8


def start_work(server, folder, *more):
    command = [sys.executable, "-m", "anarchic", "work", "--server", server.url, "--name", "ann"]
    command += ["--task", "digits:1/8", "--spool", str(folder / "spool"), *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)


@pytest.mark.slow
@pytest.mark.tried(
    "SIGTERM to a worker whose answer comes one byte per second",
    before="ignored for 8 s and longer",
    now="the worker has left the update in its spool and ended within two seconds",
)
def test_a_worker_process_stops_while_an_answer_trickles(tmp_path):
    with HostileServer(GET=answer(snapshot(DIGITS))) as server:
        server.answers["POST"] = lambda line: server.trickle(
            line, b"HTTP/1.1 202 Accepted\r\nX: ", every_s=0.5
        )
        process = start_work(server, tmp_path)
        until(lambda: any(head.startswith(b"POST") for head in server.heads), 60)
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        out, log = process.communicate(timeout=30)
        assert time.monotonic() - begun < 4
        assert process.returncode == 0, log
        assert "1 left in the spool" in out


@pytest.mark.slow
def test_a_worker_process_prints_no_escapes(tmp_path):
    refusal = json.dumps({"error": "revoked", "message": "\x1b[31mNo\x1b[0m", "remedy": "\x07"})
    with HostileServer(GET=answer(refusal.encode(), "403 No")) as server:
        process = start_work(server, tmp_path)
        out, log = process.communicate(timeout=60)
        assert process.returncode == 1
        assert not {"\x1b", "\x07"} & set(out + log)
        assert log.splitlines()[-1].startswith("Error: GET http://127.0.0.1")
