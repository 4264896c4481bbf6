"""A disk below SQLite: it knows which writes were synced, and may fail, be slow, or lose the rest.

Files are real ones in memory, so that links, names and locks are the system's own. A layer between
SQLite and them (a "VFS") keeps, for every write since the last sync of its file, what was there
before. A power cut takes all of these back and then lets any part of them happen after all: each
write as a whole, not at all, or some of its 512-byte sectors.

A process that is killed leaves its writes with the system; only a power cut loses them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import apsw

from tests.faults.dbapi import Connection
from tests.faults.hub import Hub, Process, Task, getcurrent

SECTOR = 512
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # else: where temporary files are
_names = count()


@dataclass
class Write:
    """One write since the last sync. ``new`` is None where the file was cut off at ``offset``."""

    offset: int
    new: bytes | None
    old: bytes
    size: int  # of the file before it


@dataclass
class File:
    """An inode, whatever its names."""

    descriptor: int
    path: str
    unsynced: list[Write] = field(default_factory=list)
    named: bool = True  # whether its directory was synced since it was made

    def cut(self, rng: Random) -> bool:
        """What a power cut leaves; whether anything was lost."""
        for write in reversed(self.unsynced):
            os.pwrite(self.descriptor, write.old, write.offset)
            os.ftruncate(self.descriptor, write.size)
        chance = rng.choice([0.0, 0.5, 0.9])
        lost = False
        for write in self.unsynced:
            if rng.random() >= chance:
                lost = True
            elif write.new is None:
                os.ftruncate(self.descriptor, write.offset)
            elif len(write.new) > SECTOR and rng.random() < 0.3:
                lost = True
                self._tear(write, rng)
            else:
                os.pwrite(self.descriptor, write.new, write.offset)
        self.unsynced.clear()
        if not self.named and rng.random() < 0.5:
            Path(self.path).unlink(missing_ok=True)
            return True
        self.named = True
        return lost

    def _tear(self, write: Write, rng: Random) -> None:
        assert write.new is not None
        at = 0
        while at < len(write.new):
            end = min(len(write.new), at + SECTOR - (write.offset + at) % SECTOR)
            if rng.random() < 0.5:
                os.pwrite(self.descriptor, write.new[at:end], write.offset + at)
            at = end


@dataclass
class Faults:
    """What is wrong with the disk now."""

    full: bool = False
    errors: float = 0.0  # chance that a write or sync fails
    slow_s: float = 0.0  # per sync
    kill_after: int | None = None  # writes and syncs until the process or the power goes
    power: bool = False  # whether it is the power


class Disk:
    """A folder of files that SQLite reaches through this layer only."""

    def __init__(self, hub: Hub, rng: Random) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="anarchic-faults-", dir=MEMORY))
        self.hub, self.rng = hub, rng
        self.name = f"faults{next(_names)}"
        self.faults = Faults()
        self.happened: Counter[str] = Counter()
        self.files: dict[int, File] = {}
        self.connections: list[Connection] = []
        self.doomed: Process | None = None  # it was hit by ``kill_after`` and must be ended
        self._owed_s = 0.0
        self._vfs = _Vfs(self)

    def connect(self, name: str, **_: Any) -> Connection:
        """In place of ``sqlite3.connect``."""
        return Connection(self, name)

    def before_statement(self) -> None:
        self.hub.maybe_switch()

    def after_statement(self) -> None:
        """Wait for what was slow, or die with the process that was killed meanwhile."""
        here = getcurrent()
        if not isinstance(here, Task):
            return
        if self.doomed is here.process and not here.process.dead:
            self.hub.wait()
        owed, self._owed_s = self._owed_s, 0.0
        if owed and not here.process.dead:
            self.hub.sleep(owed)

    def gone(self) -> bool:
        """Whether the process that runs now can reach the disk no more."""
        here = getcurrent()
        return isinstance(here, Task) and (here.process.dead or here.process is self.doomed)

    def touch(self, what: str) -> None:
        """Before every write and sync: the place of faults."""
        if self.gone():
            raise apsw.exception_for(apsw.SQLITE_IOERR)
        here = getcurrent()
        if not isinstance(here, Task) or here.process is self.hub.outside:
            return
        faults = self.faults
        if faults.kill_after is not None:
            faults.kill_after -= 1
            if faults.kill_after < 0:
                faults.kill_after = None
                self.doomed = here.process
                self.happened["power cut hit a write" if faults.power else "kill hit a write"] += 1
                raise apsw.exception_for(apsw.SQLITE_IOERR)
        if faults.full and what == "write":
            self.happened["write on a full disk"] += 1
            raise apsw.exception_for(apsw.SQLITE_FULL)
        if faults.errors and self.rng.random() < faults.errors:
            self.happened[f"failed {what}"] += 1
            code = apsw.SQLITE_IOERR_WRITE if what == "write" else apsw.SQLITE_IOERR_FSYNC
            raise apsw.exception_for(code)
        if faults.slow_s and what == "sync":
            self.happened["slow sync"] += 1
            self._owed_s += faults.slow_s

    def file(self, path: str) -> File:
        found = os.stat(path)
        if found.st_ino not in self.files:
            descriptor = os.open(path, os.O_RDWR)
            self.files[found.st_ino] = File(descriptor, path, named=found.st_size > 0)
        return self.files[found.st_ino]

    def cut_power(self, rng: Random) -> None:
        """Lose what was not synced. All processes must be dead."""
        for file in self.files.values():
            if file.cut(rng):
                self.happened["lost or torn writes"] += 1

    def forget(self, process: Process) -> None:
        """Close the connections of a dead process, whose writes no longer arrive."""
        for connection in [c for c in self.connections if c.owner is process]:
            connection.close()

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()
        for file in self.files.values():
            os.close(file.descriptor)
        self._vfs.unregister()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.name, "unix")

    def excepthook(self, *_: object) -> None:
        pass  # an injected error that SQLite handles by itself

    def xOpen(self, name: Any, flags: Any) -> Any:  # noqa: N802
        if self._disk.gone():
            raise apsw.exception_for(apsw.SQLITE_CANTOPEN)
        return _File(self._disk, name, flags)

    def xDelete(self, name: str, sync_dir: bool) -> None:  # noqa: N802
        if self._disk.gone():
            raise apsw.exception_for(apsw.SQLITE_IOERR)
        super().xDelete(name, sync_dir)

    def xRandomness(self, size: int) -> bytes:  # noqa: N802
        return self._disk.rng.randbytes(size)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: Any) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__("unix", name, flags)
        self._disk = disk
        self._file = disk.file(path) if path else None
        self._owner = getattr(getcurrent(), "process", None)

    def excepthook(self, *_: object) -> None:
        pass

    def _gone(self) -> bool:
        owner = self._owner
        return owner is not None and (owner.dead or owner is self._disk.doomed)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._change(offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._change(size, None)
        super().xTruncate(size)

    def _change(self, offset: int, new: bytes | None) -> None:
        if self._gone():
            raise apsw.exception_for(apsw.SQLITE_IOERR)
        self._disk.touch("write")
        file = self._file
        if file is not None:
            size = os.fstat(file.descriptor).st_size
            length = max(0, size - offset) if new is None else len(new)
            old = os.pread(file.descriptor, length, offset)
            file.unsynced.append(Write(offset, new, old, size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._gone():
            raise apsw.exception_for(apsw.SQLITE_IOERR)
        self._disk.touch("sync")
        super().xSync(flags)
        if self._file is not None:
            self._file.unsynced.clear()
            self._file.named = True
