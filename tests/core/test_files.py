import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from anarchic.core.files import locked, part_of, spare_store, sync, write_file
from anarchic.errors import ConfigError


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "file"
    write_file(path, b"old")
    write_file(path, (piece for piece in (b"n", b"ew")))
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_contents_are_on_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))
        )
    write_file(tmp_path / "file", b"data")
    sync(tmp_path)
    assert calls == ["fsync", "replace", "fsync"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_file(path, b"old")

    def pieces():
        yield b"half"
        assert part_of(path).exists()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_file(path, pieces())
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_locked_by_one_at_a_time(tmp_path):
    pytest.importorskip("fcntl")

    def enter():
        with locked(tmp_path):
            return "in"

    with ThreadPoolExecutor(1) as pool:
        with locked(tmp_path):
            other = pool.submit(enter)
            with pytest.raises(TimeoutError):
                other.result(timeout=0.1)
        assert other.result(timeout=30) == "in"


def test_a_store_is_never_written_over(tmp_path):
    path = tmp_path / "run.db"
    with closing(sqlite3.connect(path)) as store:
        store.execute("CREATE TABLE updates (seq)")
    before = path.read_bytes()
    link = tmp_path / "model.safetensors"
    link.symlink_to(path)
    for place in (path, link):
        with pytest.raises(ConfigError, match="the store of a run, and is not written over"):
            write_file(place, b"data")
    assert path.read_bytes() == before
    spare_store(tmp_path / "other")
    spare_store(tmp_path)
