"""Finished updates on disk until the server has them, and what a local rule keeps.

A file holds the very bytes that are sent, so that a worker that died sends the same update with
the same id, and the server counts it once. With it lies what the local rule will keep once the
update was accepted: both become true together, or neither does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic import wire
from anarchic.core.files import sync
from anarchic.core.types import EMPTY, Vector
from anarchic.errors import LinkError
from anarchic.worker.log import say

_NAME = re.compile(r"(\d{12})\.update")
_BODY, _KEPT = "body", "kept:"


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """An update as it is sent, and what goes with it."""

    id: str
    run: str  # of the model that was pulled
    base_version: int
    body: bytes
    kept: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@final
class Spool:
    """A directory of one worker; a second worker that asks for it is refused.

    At most ``most_updates`` updates and ``most_bytes`` bytes wait in it.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, most_updates: int = 64, most_bytes: int = 2**30
    ) -> None:
        self.path = Path(path)
        self._most_updates, self._most_bytes = most_updates, most_bytes
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path)
        for torn in self.path.glob("*.part"):  # a crash while writing; never sent
            torn.unlink()

    def put(self, finished: Finished) -> str:
        """Make an update durable; the name it is known by in here."""
        waiting = self.waiting()
        held = sum((self.path / name).stat().st_size for name in waiting)
        if len(waiting) >= self._most_updates or held + len(finished.body) > self._most_bytes:
            raise LinkError(
                f"The spool {self.path} is full: {len(waiting)} updates, {held} bytes, wait for "
                "the server. Wait until it can be reached, or give the spool more room.",
                "spool_full",
            )
        last = _NAME.fullmatch(waiting[-1]) if waiting else None
        name = f"{int(last[1]) + 1 if last else 0:012d}.update"
        body: NDArray[Any] = np.frombuffer(finished.body, np.uint8)
        kept = {_KEPT + key: vector for key, vector in finished.kept.items()}
        facts = {"id": finished.id, "run": finished.run, "base_version": finished.base_version}
        self._write(name, {_BODY: body, **kept}, facts)
        return name

    def waiting(self) -> list[str]:
        """The names of the updates that wait, oldest first."""
        return sorted(entry.name for entry in self.path.iterdir() if _NAME.fullmatch(entry.name))

    def get(self, name: str) -> Finished | None:
        """An update that waits; None if its file is damaged, which is then set aside."""
        found = self._read(name)
        if found is None:
            return None
        arrays, facts = found
        kept = {key.removeprefix(_KEPT): a for key, a in arrays.items() if key != _BODY}
        body = arrays[_BODY].tobytes()
        return Finished(facts["id"], facts["run"], facts["base_version"], body, kept or EMPTY)

    def remove(self, name: str) -> None:
        """The server has it, or will never take it."""
        (self.path / name).unlink(missing_ok=True)
        sync(self.path)

    def keep(self, run: str, kept: Mapping[str, Vector]) -> None:
        """Remember what a local rule keeps from visit to visit."""
        self._write("kept", kept, {"run": run})

    def kept(self, run: str) -> dict[str, Vector]:
        """What was kept in this run; nothing of another."""
        found = self._read("kept") if (self.path / "kept").exists() else None
        return found[0] if found is not None and found[1].get("run") == run else {}

    def close(self) -> None:
        """Let another worker have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _write(self, name: str, arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        wire.write(self.path / name, arrays, {**facts, "digest": _digest(arrays, facts)})
        sync(self.path)

    def _read(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        try:
            arrays, facts = wire.read(self.path / name)
            if facts.pop("digest") != _digest(arrays, facts):
                raise ValueError("its bytes are not those that were written")
        except Exception as error:  # whatever is wrong with it, the others must be sent
            self._set_aside(name, error)
            return None
        return arrays, facts

    def _set_aside(self, name: str, error: Exception) -> None:
        aside = self.path / "damaged"
        aside.mkdir(exist_ok=True)
        os.replace(self.path / name, aside / name)
        say("spool_damaged", logging.WARNING, file=str(aside / name), reason=str(error))


def _digest(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


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
        raise LinkError(
            f"The spool {path} is in use by another worker: give each worker a spool of its own.",
            "spool_in_use",
        ) from error
    return descriptor
