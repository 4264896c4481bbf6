"""Notes how long transactions take and whether they fail; never queries the store itself."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from anarchic.errors import Deposed, StoreError

DISK_S = 10.0  # how often the disk is looked at


@final
class Watch:
    """Notes when transactions begin, and how the last one ended."""

    def __init__(self) -> None:
        self._begun: dict[object, float] = {}  # when those began that have not ended, oldest first
        self._lock = threading.Lock()
        self.failure: StoreError | None = None  # of the last that ended
        self.links = 1  # names of the store's file; a restart is refused where there are more

    def waited_s(self) -> float:
        """For how long the oldest one has been under way; 0 where there is none."""
        with self._lock:
            return time.monotonic() - next(iter(self._begun.values()), time.monotonic())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        key, failure = object(), None
        with self._lock:
            self._begun[key] = time.monotonic()
        try:
            yield
        except StoreError as error:
            failure = None if isinstance(error, Deposed) else error
            raise
        finally:
            with self._lock:
                del self._begun[key]
                self.failure = failure


@final
class Disk:
    """How full the disk of a store is, looked at in a thread: a disk may not answer."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.free: int | None = None  # bytes; None where the store is not a file
        self.used: int | None = None  # bytes of the file

    async def watch(self) -> None:
        while self._path is not None:
            await asyncio.to_thread(self.look, self._path)
            await asyncio.sleep(DISK_S)

    def look(self, path: Path) -> None:
        try:
            self.free, self.used = shutil.disk_usage(path).free, path.stat().st_size
        except OSError:
            self.free = self.used = None
