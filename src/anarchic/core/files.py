"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anarchic.errors import ConfigError

STORE = b"SQLite format 3\0"  # how the file of a run begins


def write_file(path: Path, data: bytes | Iterable[bytes], *, private: bool = False) -> None:
    """Write or replace a file: a reader, or a crash, sees the old file or the new one, never half.

    The contents are on disk before the file has its name. ``sync`` the folder where the name must
    survive a power cut too. A ``private`` file is for its owner alone. A store is never replaced.
    """
    spare_store(path)
    part = part_of(path)
    try:
        if private:
            part.unlink(missing_ok=True)
            make_private(part)
        with open(part, "wb") as file:
            for piece in (data,) if isinstance(data, bytes) else data:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def spare_store(path: Path) -> None:
    """Refuse to write over the database of a run: that would be its end."""
    if path.is_file():
        with open(path, "rb") as file:
            if file.read(len(STORE)) == STORE:
                raise ConfigError(
                    f"{path} is a database, such as the store of a run, and is not written over: "
                    "give another name."
                )


def part_of(path: Path) -> Path:
    """Where the bytes of a file wait until it is whole."""
    return path.with_name(f"{path.name}.part")


def make_private(path: Path) -> None:
    """Create an empty file for its owner alone, unless there is one."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def make_private_folder(path: Path) -> None:
    """Create a folder for its owner alone, and those that lead to it.

    One that is there is left as it is: it may serve others too.
    """
    for folder in (*reversed(path.parents), path):
        folder.mkdir(mode=0o700, exist_ok=True)


def close_to_others(path: Path) -> None:
    """Take away what others may do with a file that everybody can read or write.

    What a group alone may do is somebody's choice, and stays. So does what is not ours to change.
    """
    with suppress(OSError):
        mode = path.stat().st_mode & 0o777
        if mode & 0o007:
            path.chmod(mode & 0o700)


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
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, where the system has such locks; it ends with the process.

    Without ``wait`` a lock that another process holds raises BlockingIOError.
    """
    try:
        import fcntl
    except ImportError:  # Windows: nothing keeps two processes apart
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
