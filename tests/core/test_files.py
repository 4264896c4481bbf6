import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from anarchic.core.files import locked, part_of, sync, write_file


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
