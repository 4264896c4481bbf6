"""Power loss: what the disk holds when only synced writes are sure to be on it.

A process that appends and publishes is traced; its system calls are replayed onto a pretended disk
that forgets, at the moment of the cut, any part of what was not synced. Whatever is left must
open, hold every update whose acceptance was told before, and have a state that fits the trace.
"""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anarchic.server.store import open_store
from tests.server.pusher import EMPTY, check
from tests.server.test_store_crash import ENVIRONMENT, ROOT

CALLS = "openat,close,pwrite64,write,ftruncate,fsync,fdatasync,unlink,rename"
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")


@dataclass
class File:
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut off there
    named: bool = True  # whether its directory was synced since it was made

    def sync(self) -> None:
        self.durable, self.unsynced = self.content(self.unsynced), []

    def content(self, writes: list[tuple[int, bytes | None]]) -> bytearray:
        data = bytearray(self.durable)
        for offset, new in writes:
            if new is None:
                del data[offset:]
                data.extend(bytes(max(0, offset - len(data))))
            else:
                data.extend(bytes(max(0, offset - len(data))))
                data[offset : offset + len(new)] = new
        return data


def unescaped(text: str) -> bytes:
    return bytes.fromhex(text.strip('"').replace("\\x", ""))


@dataclass
class Disk:
    """The files beside the store, as far as they are known to be on disk."""

    folder: Path
    files: dict[str, File]
    open: dict[int, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def see(self, call: str, words: str, result: int) -> bool:
        """Follow a system call; whether it changed what a power cut leaves."""
        if result < 0:
            return False
        if call == "openat":
            path = unescaped(words.split(", ")[1]).decode()
            self.open[result] = path
            if Path(path).parent == self.folder and path not in self.files and "O_CREAT" in words:
                self.files[path] = File(named=False)
            return False
        if call == "unlink":
            return self.files.pop(unescaped(words).decode(), None) is not None
        number, _, rest = words.partition(", ")
        return self._see_descriptor(call, int(number), rest)

    def _see_descriptor(self, call: str, number: int, rest: str) -> bool:
        path = self.open.get(number, "")
        if call == "close":
            self.open.pop(number, None)
        elif call == "write" and number == 1:
            self._listen(unescaped(rest.split(", ")[0]).decode())
            return True
        elif path == str(self.folder) and "sync" in call:
            for file in self.files.values():
                file.named = True
        elif path in self.files:
            return self._see_file(self.files[path], call, rest)
        return False

    def _see_file(self, file: File, call: str, rest: str) -> bool:
        if call == "pwrite64":
            data, _, offset = rest.split(", ")
            file.unsynced.append((int(offset), unescaped(data)))
        elif call == "ftruncate":
            file.unsynced.append((int(rest), None))
        elif "sync" in call:
            file.sync()
        else:
            raise AssertionError(f"cannot follow {call}")
        return True

    def _listen(self, said: str) -> None:
        for line in said.splitlines():
            if line.startswith("accepted"):
                self.told += json.loads(line.removeprefix("accepted "))

    def after_a_cut(self, rng: random.Random | None, folder: Path) -> None:
        """Write what is left: all that is synced, and by chance some of the rest."""
        for path, file in self.files.items():
            lucky = [write for write in file.unsynced if rng is not None and rng.random() < 0.5]
            if file.named or (rng is not None and rng.random() < 0.5):
                (folder / Path(path).name).write_bytes(file.content(lucky))


def moments(trace: Path, disk: Disk) -> Iterator[Disk]:
    for line in trace.read_text().splitlines():
        found = CALL.match(line)
        if found and disk.see(found[1], found[2], int(found[3])):
            yield disk


def traced(tmp_path: Path) -> tuple[Path, Disk]:
    """The trace of a process at work, and the disk as it was before."""
    folder = tmp_path / "store"
    folder.mkdir()
    store = open_store(folder / "run.db")
    store.create({}, b"model", EMPTY)
    store.close()
    (folder / "run.db-journal").unlink()  # so that the process has to make it
    files = {str(path): File(bytearray(path.read_bytes())) for path in folder.iterdir()}
    trace = tmp_path / "trace"
    work = [sys.executable, "-m", "tests.server.pusher", str(folder / "run.db"), "x", "3"]
    strace = ["strace", "-f", "-xx", "-s", "200000", "-e", f"trace={CALLS}", "-o", str(trace)]
    done = subprocess.run([*strace, *work], cwd=ROOT, env=ENVIRONMENT, capture_output=True)
    if done.returncode != 0 and b"ptrace" in done.stderr.lower():
        pytest.skip("this system does not allow tracing")
    assert done.returncode == 0, done.stderr.decode()
    return trace, Disk(folder, files)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_accepted_updates_survive_a_power_cut_at_any_moment(tmp_path: Path) -> None:
    trace, disk = traced(tmp_path)
    rng = random.Random(0)
    cuts = 0
    for now in moments(trace, disk):
        for luck in (None, rng):
            left = tmp_path / f"left{cuts}"
            left.mkdir()
            now.after_a_cut(luck, left)
            store = open_store(left / "run.db")
            check(store, now.told)
            store.close()
            shutil.rmtree(left)
            cuts += 1
    assert len(disk.told) == 9
    assert cuts > 50


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_simulated_disk_loses_what_is_not_synced(tmp_path: Path) -> None:
    """The test of the test: without its syncs the same trace must lose updates."""
    trace, disk = traced(tmp_path)
    kept = [line for line in trace.read_text().splitlines() if "sync(" not in line]
    trace.write_text("\n".join(kept))
    for _ in moments(trace, disk):
        pass
    left = tmp_path / "left"
    left.mkdir()
    copy.deepcopy(disk).after_a_cut(None, left)
    store = open_store(left / "run.db")
    with pytest.raises(AssertionError):
        check(store, disk.told)
    store.close()
