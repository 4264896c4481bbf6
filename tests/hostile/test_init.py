"""A first model for a store that holds a run, and starts that are refused."""

from __future__ import annotations

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from anarchic import Layout, wire
from anarchic.cli import app
from anarchic.server import tables
from anarchic.server.tokens import add_token
from tests.chaos.servers import LAYOUT, ServerProcess, free_port, write_model

OPEN = "--open-enrolment"


def refusal(*words: object) -> str:
    """What a start of ``anarchic serve`` in this process is refused with."""
    found = CliRunner().invoke(app, ["serve", *map(str, words)], prog_name="anarchic")
    assert found.exit_code in (1, 2), found.output
    assert isinstance(found.exception, SystemExit)
    return " ".join(found.stderr.split())


@pytest.fixture(autouse=True)
def not_served(monkeypatch):
    """A start that is not refused ends all the same."""
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *_: None)


def other_models(folder: Path) -> list[Path]:
    """Another model, another architecture, junk, and a file that is not there."""
    another, bigger, junk = folder / "another", folder / "bigger", folder / "junk"
    wire.save_model(another, LAYOUT, np.zeros(LAYOUT.dim, np.float32))
    write_model(bigger, Layout.of({"weight": ((300,), "F32")}))
    junk.write_bytes(b"\x10\0\0\0\0\0\0\0{junk")
    return [another, bigger, junk, folder / "missing"]


def forget_the_first_model(store: str) -> None:
    """Make the run one of before the first model was recorded."""
    with closing(sqlite3.connect(store)) as database, database:
        ((id, text),) = database.execute("select id, settings from run").fetchall()
        settings = {k: v for k, v in json.loads(text).items() if k != "first_model"}
        text = json.dumps(settings)
        seal = tables.seal(f"run {id}", text.encode())
        database.execute("update run set settings = ?, seal = ?", (text, seal))


@pytest.mark.slow
@pytest.mark.tried(
    "`serve --init` with another model, another architecture, junk or a missing file on a store "
    "that holds a run",
    before="silently ignored",
    now="refused with the run, its version and what to do; the same model is accepted",
)
def test_only_the_first_model_of_the_run_is_accepted_again(tmp_path):
    init, store = write_model(tmp_path / "model"), str(tmp_path / "run.db")
    server = ServerProcess(store, init, tmp_path / "log", OPEN)
    with server:
        run = server.status()["run"]
        server.kill()
        server.start()  # the very same command
        server.await_ready()
        assert server.status()["run"] == run
        assert server.stop() == 0
    port = ("--port", server.port)
    for older in (False, True):
        if older:
            forget_the_first_model(store)
        for model in other_models(tmp_path):
            told = refusal("--store", store, OPEN, *port, "--init", model)
            assert f"The store already holds run {run} at version 0" in told
            assert "leave out --init to go on with that run, or choose another --store." in told
    copy = tmp_path / "copy"  # the same model from another file, with other metadata
    wire.save_model(copy, *wire.load_model(init)[:2], note="copied")
    words = ["serve", "--store", store, OPEN, "--init", str(copy), "--port", str(server.port)]
    assert CliRunner().invoke(app, words).exit_code == 0
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("delete from models where version = 0")
    told = refusal("--store", store, OPEN, *port, "--init", init)
    assert "its first model is no longer kept" in told


@pytest.mark.tried(
    "starts that are refused: junk as first model, no tokens, a port that is taken, wrong settings",
    before="each left an empty store",
    now="nothing is left behind",
)
def test_a_refused_start_leaves_nothing_behind(tmp_path):
    init = write_model(tmp_path / "model")
    (tmp_path / "junk").write_bytes(b"junk")
    where = tmp_path / "where"
    where.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free, port = ("--port", free_port()), ("--port", taken.getsockname()[1])
        new = ("--store", where / "run.db")
        first = ("--init", init, *free)
        starts = {
            "safetensors": (*new, OPEN, "--init", tmp_path / "junk", *free),
            "no run yet": (*new, OPEN, *free),
            "Nobody may push": (*new, *first),
            "Cannot listen": (*new, OPEN, "--init", init, *port),
            "m=0": (*new, OPEN, *first, "--m", "0"),
            "--cap": (*new, OPEN, *first, "--rule", "afa-cs"),
            "no_such_module": (*new, OPEN, *first, "--evaluate", "no_such_module:judge"),
            "TLS": (*new, OPEN, *first, "--tls-cert", init, "--tls-key", init),
            "listen on": ("--store", f"sqlite:///{where}/x.db", OPEN, "--init", init, *port),
            "at least": (*new, OPEN, *first, "--history", "0"),
        }
        for word, words in starts.items():
            assert word in refusal(*words)
        assert list(where.iterdir()) == []
        add_token(where / "run.db", "ann")  # a store without a run, which stays as it is
        before = {path: path.read_bytes() for path in where.iterdir()}
        for word, words in starts.items():
            if word != "Nobody may push":
                assert word in refusal(*words)
    assert {path: path.read_bytes() for path in where.iterdir()} == before
