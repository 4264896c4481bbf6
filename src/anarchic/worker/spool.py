"""Updates on disk until the server has them, and the state of a local rule.

A file holds the very bytes that are sent, so that a worker that died sends the same update with
the same id, and the server counts it once. The same file holds the state that the local rule has
once the update is accepted, so that neither is stored without the other.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic import wire
from anarchic.core.files import make_private_folder, sync
from anarchic.core.reading import read_file, reason
from anarchic.core.types import EMPTY, Vector
from anarchic.errors import WorkerError
from anarchic.worker.log import log_event

_FILE = re.compile(r"(\d{12})\.update")
_BODY, _KEPT = "body", "kept:"  # tensors in an update's file
_LOCAL_STATE = "kept"  # file
# Bytes of one file: more than any update that was ever spooled, with the state of a local rule.
_MAX_FILE = 2**32


@dataclass(frozen=True, slots=True, eq=False)
class OutgoingUpdate:
    """An update as it is sent, and the local rule's state once it is accepted."""

    id: str
    run: str  # of the model that was pulled
    base_version: int
    body: bytes
    local_state: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@final
class Spool:
    """A directory for the unsent updates of one worker; a second worker is refused.

    It holds at most ``max_updates`` updates and ``max_bytes`` bytes.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_updates: int = 64, max_bytes: int = 2**30
    ) -> None:
        self.path = Path(path)
        self._max_updates, self._max_bytes = max_updates, max_bytes
        make_private_folder(self.path)
        self._lock = _locked(self.path)
        for torn in self.path.glob("*.part"):  # a crash while writing; never sent
            with suppress(OSError):  # a directory of that name is not ours
                torn.unlink()

    def put(self, outgoing: OutgoingUpdate) -> str:
        """Store an update; returns the name of its file."""
        waiting = self.waiting()
        held = sum((self.path / name).lstat().st_size for name in waiting)
        if len(waiting) >= self._max_updates or held + len(outgoing.body) > self._max_bytes:
            raise WorkerError(
                f"The spool {self.path} is full: {len(waiting)} updates, {held} bytes, wait for "
                "the server. Wait until it can be reached, or give the spool more room.",
                "spool_full",
            )
        last = _FILE.fullmatch(waiting[-1]) if waiting else None
        name = f"{int(last[1]) + 1 if last else 0:012d}.update"
        body: NDArray[Any] = np.frombuffer(outgoing.body, np.uint8)
        state = {_KEPT + key: vector for key, vector in outgoing.local_state.items()}
        facts = {"id": outgoing.id, "run": outgoing.run, "base_version": outgoing.base_version}
        self._write(name, {_BODY: body, **state}, facts)
        return name

    def waiting(self) -> list[str]:
        """The names of the updates that wait, oldest first."""
        return waiting_in(self.path)

    def get(self, name: str) -> OutgoingUpdate | None:
        """An update that waits; None if its file is damaged, which is then set aside."""
        found = self._read(name, {"id": str, "run": str, "base_version": int})
        if found is None:
            return None
        arrays, facts = found
        body = arrays.pop(_BODY).tobytes()
        state = {key.removeprefix(_KEPT): array for key, array in arrays.items()}
        return OutgoingUpdate(
            facts["id"], facts["run"], facts["base_version"], body, state or EMPTY
        )

    def remove(self, name: str) -> None:
        """Delete an update that the server has, or has refused for good."""
        (self.path / name).unlink(missing_ok=True)
        sync(self.path)

    def save_local_state(self, run: str, vectors: Mapping[str, Vector]) -> None:
        """Store what a local rule keeps from visit to visit."""
        self._write(_LOCAL_STATE, vectors, {"run": run})

    def local_state(self, run: str) -> dict[str, Vector]:
        """What a local rule kept in this run; nothing from another run."""
        there = os.path.lexists(self.path / _LOCAL_STATE)
        found = self._read(_LOCAL_STATE, {"run": str}) if there else None
        return found[0] if found is not None and found[1]["run"] == run else {}

    def close(self) -> None:
        """Give up the lock, so that another worker may use the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _write(self, name: str, arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        told = {**facts, "digest": _digest(arrays, facts)}
        wire.write(self.path / name, arrays, told, private=True)
        sync(self.path)

    def _read(
        self, name: str, needs: Mapping[str, type]
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        try:
            data = read_file(self.path / name, most=_MAX_FILE, follow=False)
            arrays, facts = wire.decode_state(data)
            if facts.pop("digest", None) != _digest(arrays, facts):
                raise ValueError("Its bytes are not those that were written")
            if not all(isinstance(facts.get(fact), kind) for fact, kind in needs.items()):
                raise ValueError(f"It has not all of {', '.join(needs)}")
            if "id" in needs and _BODY not in arrays:
                raise ValueError("It holds no update")
        except Exception as error:  # whatever is wrong with it, the others must be sent
            self._set_aside(name, error)
            return None
        return arrays, facts

    def _set_aside(self, name: str, error: Exception) -> None:
        aside = self.path / "damaged" / name
        if os.path.lexists(aside):
            aside = aside.with_name(f"{name}.{uuid.uuid4().hex[:8]}")
        why, found = reason(error), aside
        try:
            aside.parent.mkdir(mode=0o700, exist_ok=True)
            os.rename(self.path / name, aside)
        except OSError as stuck:  # it stays, and the others are sent all the same
            why, found = f"{why}; it cannot be moved away: {reason(stuck)}", self.path / name
        log_event("spool_damaged", logging.WARNING, file=str(found), reason=why)


def _digest(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def waiting_in(path: Path) -> list[str]:
    """The names of the updates that wait in a spool, oldest first."""
    return sorted(entry.name for entry in path.iterdir() if _FILE.fullmatch(entry.name))


def in_use(path: Path) -> bool:
    """Whether a worker has this spool; it is not made where there is none."""
    if not (path / "lock").exists():
        return False
    try:
        os.close(_locked(path))
    except WorkerError:
        return True
    return False


def _locked(path: Path) -> int:
    """A lock that ends with the process, however that ends."""
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise WorkerError(
            f"The spool {path} is in use by another worker: give each worker a spool of its own.",
            "spool_in_use",
        ) from error
    return descriptor
