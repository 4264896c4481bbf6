"""``/healthz`` says 503 while the server cannot do its work, and 200 once it can again."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded
from tests.server.test_store_faults import small_disk

pytestmark = pytest.mark.slow
LOCK = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
store.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def serving(tmp_path, store):
    init = write_model(tmp_path / "model.safetensors")
    options = ("--open-enrolment", "--m", "100")
    with ServerProcess(str(store), init, tmp_path / "log", *options) as server:
        yield server


def push(server, id):
    with Line(server.port, 60.0) as line:
        return line.push(encoded(LAYOUT, "ann", id)).status


def health(server):
    with Line(server.port, 2.0) as line:  # it never hangs itself
        return line.get("/healthz").status


def until_health(server, status, within_s):
    end = time.monotonic() + within_s
    while (found := health(server)) != status:
        assert time.monotonic() < end, f"/healthz says {found}"
        time.sleep(0.05)


@pytest.mark.tried(
    "a full disk under the store",
    before="pushes got 507, and /healthz said 200",
    now="/healthz says 503 from the first 507 until an update is stored again",
)
def test_a_full_disk_is_told_until_there_is_room(tmp_path):
    with (
        small_disk(tmp_path / "disk", megabytes=4) as disk,
        serving(tmp_path, disk / "run.db") as server,
    ):
        assert push(server, "1") == 202
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1 << 12)):
                pass
        sent = 2
        while (answer := push(server, str(sent))) == 202:  # there is some room inside the store
            sent += 1
        assert answer == 507
        assert health(server) == 503
        filler.unlink()
        assert push(server, str(sent)) == 202
        assert health(server) == 200


@pytest.mark.tried(
    "another process locks the store's file",
    before="pushes hung and then got 503, and /healthz said 200",
    now="/healthz says 503 after 5 s, and 200 once the lock is gone",
)
def test_a_locked_database_is_told_until_it_is_free(tmp_path):
    with serving(tmp_path, tmp_path / "run.db") as server:
        words = [sys.executable, "-c", LOCK, str(tmp_path / "run.db")]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout.readline() == b"locked\n"
            until_health(server, 503, within_s=15)
            other.stdin.close()
        until_health(server, 200, within_s=15)
        assert push(server, "1") == 202
