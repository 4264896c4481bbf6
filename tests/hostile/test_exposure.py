"""What others on the machine may read, and what a stranger or a former worker may still do."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from anarchic.cli import app
from anarchic.errors import StoreError
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token, revoke_token
from anarchic.worker.spool import OutgoingUpdate, Spool
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line, push_head
from tests.chaos.updates import encoded
from tests.server.make import begun
from tests.server.test_stall import register


@pytest.fixture
def usual_umask():
    """The umask that most systems start with, whatever this one has."""
    former = os.umask(0o022)
    yield
    os.umask(former)


def modes(folder: Path) -> dict[str, int]:
    """The permissions of everything below a folder."""
    return {
        str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")
    }


@pytest.mark.tried(
    "reading store, journal, lock, spool and token file as another user of the machine",
    before="files were made with the usual permissions, 0644",
    now="files are 0600, directories 0700",
)
def test_files_are_private(tmp_path, usual_umask):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store)
        assert store.lead() == 1
    with closing(Spool(tmp_path / "state" / "spool" / "ann")) as spool:
        spool.put(OutgoingUpdate("1", "run", 0, b"body"))
        spool.save_local_state("run", {"control": np.zeros(2)})
        (spool.path / spool.put(OutgoingUpdate("2", "run", 0, b"body"))).write_bytes(b"damaged")
        assert spool.get(spool.waiting()[1]) is None
    add = ("token", "add", "ann", "--store", tmp_path / "run.db", "--out", tmp_path / "ann.token")
    assert CliRunner().invoke(app, [str(word) for word in add]).exit_code == 0
    found = modes(tmp_path)
    folders = {"state", "state/spool", "state/spool/ann", "state/spool/ann/damaged"}
    assert {"run.db", "run.db-journal", "run.db.lock", "ann.token"} < found.keys()
    assert found == {name: 0o700 if name in folders else 0o600 for name in found}
    assert (tmp_path / "ann.token").read_text().startswith("ann.")


def test_files_that_everybody_could_read_become_private_when_opened(tmp_path, usual_umask):
    path = tmp_path / "run.db"
    with closing(open_store(path)) as store:
        begun(store)
        assert store.lead() == 1
    for name in modes(tmp_path):
        (tmp_path / name).chmod(0o644)
    with closing(open_store(path)):
        assert set(modes(tmp_path).values()) == {0o600}
    path.chmod(0o660)  # for a group: somebody's choice, which stays
    with closing(open_store(path)):
        assert modes(tmp_path)["run.db"] == 0o660


@pytest.mark.parametrize("contents", [b"dear diary", b"SQLite format 3\0" + bytes(84)])
def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path, usual_umask, contents):
    path = tmp_path / "diary.txt"
    path.write_bytes(contents)
    with pytest.raises(StoreError):
        open_store(path)
    assert modes(tmp_path)["diary.txt"] == 0o644
    assert path.read_bytes() == contents


@pytest.mark.slow
@pytest.mark.tried(
    "an upload that begins before its token is revoked or replaced, and ends 3 s afterwards",
    before="accepted",
    now="refused: 403 `revoked`",
)
def test_an_upload_does_not_outlive_its_token(tmp_path):
    store = str(tmp_path / "run.db")
    tokens = register(store, ["ann", "bob", "cleo"])
    init = write_model(tmp_path / "model")
    with ServerProcess(store, init, tmp_path / "log") as server:
        lines = {}
        for name in tokens:
            body = encoded(LAYOUT, name, "1")
            lines[name] = Line(server.port), body[-1:]
            lines[name][0].send(push_head(len(body), tokens[name]) + body[:-1])
        time.sleep(0.3)  # the server has the heads, and has checked the tokens
        revoke_token(store, "ann")
        add_token(store, "bob")
        time.sleep(3.0)
        told = {}
        for name, (line, end) in lines.items():
            line.send(end)
            answer = line.answer()
            told[name] = (answer.status, answer.json().get("error"))
            line.close()
        assert told == {"ann": (403, "revoked"), "bob": (403, "revoked"), "cleo": (202, None)}
        assert server.status()["buffered"] == 1


class From(Line):
    """A connection from another address of this machine."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(port)
        self._socket = socket.create_connection(
            ("127.0.0.1", port), 15.0, source_address=(address, 0)
        )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of Linux alone")
@pytest.mark.tried(
    "101 updates by a stranger under the name of a worker, with open enrolment",
    before="429 for the worker, with or without a token",
    now="202: the pace of a name is that of its token, or of its address",
)
def test_a_stranger_cannot_use_up_the_pace_of_a_worker(tmp_path):
    store, init = str(tmp_path / "run.db"), write_model(tmp_path / "model")
    words = ("--open-enrolment", "--updates-per-minute", "1", "--m", "50")
    with ServerProcess(store, init, tmp_path / "log", *words) as server:
        with From(server.port, "127.0.0.2") as stranger:
            told = [stranger.push(encoded(LAYOUT, "ann", "1")).status for _ in range(101)]
            assert told == [202] + [200] * 99 + [429]
        with Line(server.port) as line:
            assert line.push(encoded(LAYOUT, "ann", "2")).status == 202
            token = register(store, ["ann"])["ann"]
            time.sleep(2.0)  # until the server has read it
            assert line.push(encoded(LAYOUT, "ann", "3"), token).status == 202
