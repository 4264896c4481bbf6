"""What workers see: the newest version, and those before it that are still kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from anarchic.core.types import Snapshot


@dataclass(frozen=True, slots=True)
class Posted:
    """A published version: as workers pull it, and as updates are checked against it."""

    snapshot: Snapshot
    body: bytes
    etag: str

    @property
    def version(self) -> int:
        return self.snapshot.version


class Board:
    """Readers take the newest version without a lock; whoever posts one tells the listeners."""

    def __init__(self, run: str, history: int) -> None:
        self.run = run
        self._history = history
        self._kept: OrderedDict[int, Posted] = OrderedDict()
        self._newest: Posted | None = None
        self._listeners: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    @property
    def newest(self) -> Posted:
        assert self._newest is not None, "the first version is posted before anything is served"
        return self._newest

    @property
    def has_one(self) -> bool:
        return self._newest is not None

    def post(self, snapshot: Snapshot, body: bytes) -> None:
        posted = Posted(snapshot, body, f'"{self.run}-{snapshot.version}"')
        with self._lock:
            self._kept[snapshot.version] = posted
            while len(self._kept) > self._history:
                self._kept.popitem(last=False)
            self._newest = posted
        for listener in list(self._listeners):
            listener()

    def get(self, version: int) -> Posted | None:
        return self._kept.get(version)

    def listen(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` after every post, from whatever thread posts."""
        self._listeners.append(listener)
