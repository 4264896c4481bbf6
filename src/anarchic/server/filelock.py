"""One server per file, by whatever name the file is reached.

Two locks are held. The first is on the file itself, that is on its inode: a lock of the open file
description (Linux) on a byte that SQLite does not use. It holds across names, mounts and
containers, for as long as the descriptor is open. An ordinary POSIX lock would not do: SQLite
closes descriptors of the file, and the system then frees all POSIX locks that the process has on
it. ``flock`` would not do either: over NFS and on macOS it collides with SQLite's own locks.

The second is SQLite's lock on a file beside the store, ``PATH.lock``. It works on every system,
and keeps out servers of earlier versions, which know no other. It goes by name.

For the same reason no descriptor of ours is closed while a connection of this process may have
the file locked: closing it would free SQLite's locks.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import struct
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from anarchic.core.files import make_private
from anarchic.errors import StoreUnavailable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NEW = ".new"  # ends the name of a file that is being made
_BYTE = 0x4000_0400  # SQLite locks 0x4000_0000 to 0x4000_01FF
PLAIN: dict[str, Any] = {"timeout": 0.0, "isolation_level": None, "check_same_thread": False}

Inode = tuple[int, int]  # device and number

_guard = threading.Lock()
_users: Counter[Inode] = Counter()  # stores of this process that have the file open
_open: dict[int, Inode] = {}  # descriptors of ours
_unused: set[int] = set()  # those that are closed when the file has no user left


def inode_of(path: Path) -> Inode:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def check_names(path: Path) -> None:
    """Refuse a file with a second name: SQLite looks for an interrupted write by name.

    Whoever opened it by the other name would not see that write, and damage the store.
    """
    if os.stat(path).st_nlink > 1:
        _finish_making(path)
    links = os.stat(path).st_nlink
    if links > 1:
        raise StoreUnavailable(
            f"{path} has {links} names (hard links). A store must have one, or SQLite cannot "
            f"repair it after a crash. Find the others with 'find DIRECTORY -samefile {path}' and "
            "remove them, or serve a copy."
        )
    if str(path) in _mount_points():
        raise StoreUnavailable(
            f"{path} is itself a mount point, so that its journal would not be beside it where it "
            "is mounted from. Mount its directory instead."
        )


def check_gone(path: Path) -> None:
    """Refuse to make a file in the place of one that a server still has open."""
    if not Path(f"{path}.lock").exists():
        return
    beside = _lock_beside(path)
    if beside is not None:
        beside.close()
    elif not path.exists():  # or it has just been made
        raise StoreUnavailable(
            f"{path} is gone, but a server still has it open (it holds {path}.lock). Stop that "
            "server first, or give another path."
        )


def _finish_making(path: Path) -> None:
    """Remove the first name of a file whose maker was killed, or is about to remove it."""
    for other in path.parent.iterdir():
        if other.name.startswith(f"{path.name}.") and other.name.endswith(NEW):
            with suppress(FileNotFoundError):
                if other.samefile(path):
                    other.unlink()


def _mount_points() -> set[str]:
    """Where anything is mounted; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return set()
    places = (line.split(b" ")[4] for line in lines)
    return {os.fsdecode(re.sub(rb"\\(\d{3})", _unescaped, place)) for place in places}


def _unescaped(octal: re.Match[bytes]) -> bytes:
    return bytes([int(octal[1], 8)])


@final
class FileLock:
    """The lock of one store on its file. Make it before connecting, close it afterwards."""

    def __init__(self, path: Path) -> None:
        self._path, self.inode = path, inode_of(path)
        self._descriptor: int | None = None
        self._beside: sqlite3.Connection | None = None
        with _guard:
            _users[self.inode] += 1

    @property
    def held(self) -> bool:
        return self._beside is not None

    def take(self) -> bool:
        """Whether it is ours now."""
        if self.held:
            return True
        beside = _lock_beside(self._path)
        if beside is None:
            return False
        try:
            taken = self._lock_inode()
        except BaseException:
            beside.close()
            raise
        if taken:
            self._beside = beside
        else:
            beside.close()
        return taken

    def _lock_inode(self) -> bool:
        if not hasattr(fcntl, "F_OFD_SETLK"):
            return True
        if self._descriptor is None or self._descriptor not in _open:
            self._descriptor = _opened(self._path)
        if _open[self._descriptor] != self.inode:  # it was replaced a moment ago
            _retire(self._descriptor)
            self._descriptor = None
            raise StoreUnavailable(replaced(self._path))
        try:
            _set_lock(self._descriptor, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                _retire(self._descriptor)
                self._descriptor = None
                return True  # the system has no such locks
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def release(self) -> None:
        beside, self._beside = self._beside, None
        if beside is None:
            return
        try:
            if self._descriptor is not None and self._descriptor in _open:
                _set_lock(self._descriptor, fcntl.F_UNLCK)
        finally:
            beside.close()

    def close(self) -> None:
        self.release()
        if self._descriptor is not None:
            _retire(self._descriptor)
            self._descriptor = None
        with _guard:
            _users[self.inode] -= 1
            if not _users[self.inode]:
                del _users[self.inode]
            _close_unused()


def is_locked(path: Path) -> bool:
    """Whether a server has the file open, as far as the system tells without taking the lock.

    For a process that has not opened the store: see above for what closing a descriptor does.
    """
    if not hasattr(fcntl, "F_OFD_GETLK"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _BYTE, 1, 0)
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
        return bool(struct.unpack("hhqqi", found)[0] != fcntl.F_UNLCK)
    except OSError:  # the file system has no such locks
        return False
    finally:
        os.close(descriptor)


def replaced(path: Path) -> str:
    """What to say of a file that is no longer the one that was opened."""
    return (
        f"{path} was moved or replaced while it was open. Nothing is written to either file. Stop "
        "this server; restore a store only while no server runs, then start it again."
    )


def _lock_beside(path: Path) -> sqlite3.Connection | None:
    make_private(Path(f"{path}.lock"))
    lock: sqlite3.Connection = sqlite3.connect(f"{path}.lock", **PLAIN)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        lock.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            return None
        raise
    return lock


def _set_lock(descriptor: int, kind: int) -> None:
    where = struct.pack("hhqqi", kind, os.SEEK_SET, _BYTE, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, where)


def _opened(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR)
    found = os.fstat(descriptor)
    with _guard:
        _open[descriptor] = (found.st_dev, found.st_ino)
    return descriptor


def _retire(descriptor: int) -> None:
    with _guard:
        if descriptor in _open:  # a forked child has closed it
            _unused.add(descriptor)
        _close_unused()


def _close_unused() -> None:
    for descriptor in [each for each in _unused if not _users[_open[each]]]:
        os.close(descriptor)
        _unused.remove(descriptor)
        del _open[descriptor]


def _close_in_child() -> None:
    """A forked child must not keep the lock after its parent's death; it has no SQLite locks."""
    global _guard
    _guard = threading.Lock()  # another thread of the parent may have held it
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()
    _unused.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
