"""What is no update in a worker's spool: it is set aside, and the others are sent."""

import logging
import os
import socket

import pytest

from anarchic import wire
from anarchic.worker import Spool, WorkPlan
from anarchic.worker.settings import default_spool
from anarchic.worker.task import FunctionTask
from tests.hostile.answers import HostileServer
from tests.hostile.impatient import ONES, push, wire_layout, worker
from tests.hostile.odd_files import DEEP


def test_a_spools_name_does_not_depend_on_how_the_address_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spool = default_spool("http://example.org", "ann")
    assert spool == tmp_path / "anarchic/spool/http%3A%2F%2Fexample.org/ann"  # as it always was
    for same in ("http://example.org/", "HTTP://Example.ORG:80", "http://example.org:80//"):
        assert default_spool(same, "ann") == spool
    for other in ("https://example.org", "http://example.org:8780", "http://example.org/b"):
        assert default_spool(other, "ann") != spool


def hostile_file(path, kind):
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "huge":
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "state":  # a good file, but of another kind
        wire.write(path, {"x": ONES}, {"run": "run-a"})
    else:
        path.write_bytes({"empty": b"", "text": b"x" * 99, "deep": DEEP}[kind])


KINDS = ["fifo", "directory", "device", "loop", "huge", "socket", "state", "empty", "text", "deep"]


@pytest.mark.tried(
    "a pipe, a directory, a device, a symlink loop or a file of 1 TiB in the spool",
    before="a pipe kept the worker waiting for ever",
    now="set aside, and the other updates are sent",
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_update_in_the_spool_is_set_aside(kind, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    hostile_file(spool / "000000000000.update", kind)
    hostile_file(spool / "kept", kind)
    hostile_file(spool / "000000000009.update.part", "directory")
    task = FunctionTask(wire_layout(), lambda x: (x + 1, 0.0, 1))
    with HostileServer() as server, worker(server, spool=spool) as someone:
        summary = someone.run(task, WorkPlan(updates=1))
        assert (summary.accepted, summary.resent) == (1, {"damaged": 1})
        assert someone.local_state() == {}
        assert someone.spool.waiting() == []


def test_a_file_that_cannot_be_moved_away_does_not_keep_the_others(tmp_path, caplog):
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "damaged").write_text("in the way")
    os.mkfifo(spool / "000000000000.update")
    caplog.set_level(logging.WARNING, "anarchic.worker")
    with HostileServer() as server, worker(server, spool=Spool(spool)) as someone:
        assert push(someone).version == 1
    assert "it cannot be moved away" in caplog.text
