"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write or replace a file: a reader, or a crash, sees the old file or the new one, never half.

    The contents are on disk before the file has its name. ``sync`` the folder where the name must
    survive a power cut too.
    """
    part = part_of(path)
    try:
        with open(part, "wb") as file:
            for piece in (data,) if isinstance(data, bytes) else data:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def part_of(path: Path) -> Path:
    """Where the bytes of a file wait until it is whole."""
    return path.with_name(f"{path.name}.part")


def sync(path: Path) -> None:
    """Make a file's contents, or the names in a folder, survive a power cut."""
    if sys.platform == "win32":  # it syncs neither folders nor files that are open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, where the system has such locks; it ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows: nothing keeps two processes apart
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
