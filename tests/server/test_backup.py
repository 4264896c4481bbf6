"""A copy made beside a running server is a whole store, and never in the place of another file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.errors import ConfigError
from anarchic.server.backup import backup_store
from anarchic.server.store import open_store
from tests.server.stored import led, new, next_version, outcomes


def test_a_copy_made_while_a_server_writes_is_a_moment_of_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    store.create({}, b"model 0", b"state 0")
    epoch, stop, published = led(store), threading.Event(), threading.Semaphore(0)

    def write() -> None:
        for number in range(1, 10_000):
            if stop.is_set():
                return
            [(_, seq)] = outcomes(store, new("a", str(number), bytes(50_000)))
            store.publish(next_version(store, epoch, [seq]))
            published.release()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(3):
            for _ in range(3):
                published.acquire()
            copy = open_store(backup_store(tmp_path / "run.db", tmp_path / f"{number}.db"))
            run, trace = copy.run(), list(copy.trace())
            assert run is not None
            assert run.version >= 3 * (number + 1)
            assert run.folded == run.version
            assert len(trace) in (run.folded, run.folded + 1)
            assert copy.standing().model == f"model {run.version}".encode()
            copy.close()
    finally:
        stop.set()
        writing.join()
        store.close()
    assert (tmp_path / "0.db").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_a_backup_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "run.db").close()
    with pytest.raises(ConfigError, match="exists already"):
        backup_store(tmp_path / "run.db", tmp_path / "run.db")
    with pytest.raises(ConfigError, match="There is no directory"):
        backup_store(tmp_path / "run.db", tmp_path / "no" / "copy.db")
    with pytest.raises(ConfigError, match="There is no store"):
        backup_store(tmp_path / "no.db", tmp_path / "copy.db")
    with pytest.raises(ConfigError, match="pg_dump"):
        backup_store("postgresql://host/run", tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.db"]


def test_the_command_says_where_the_copy_is(tmp_path: Path) -> None:
    open_store(tmp_path / "run.db").close()
    words = ["store", "backup", str(tmp_path / "run.db"), "--out", str(tmp_path / "copy.db")]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    assert "copy.db" in found.output
    assert (tmp_path / "copy.db").exists()
