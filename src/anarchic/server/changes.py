"""How a thread waits for changes of the database without missing any."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import final


@final
class ChangeSignal:
    """Wakes threads after a write. A waiting thread notices every write since it last returned.

    ``look`` returns something that differs after a write by another process. It is compared with
    what the same thread saw before, every ``look_every_s`` while the thread waits.
    """

    def __init__(self, look: Callable[[], object] = lambda: None, look_every_s: float = 60) -> None:
        self._look = look
        self._look_every_s = look_every_s
        self._written = threading.Condition()
        self._writes = 0
        self._seen = threading.local()

    def notify(self) -> None:
        with self._written:
            self._writes += 1
            self._written.notify_all()

    def wait(self, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        with self._written:
            while True:
                now = (self._writes, self._look())
                left = end - time.monotonic()
                if now != getattr(self._seen, "last", None) or left <= 0:
                    self._seen.last = now
                    return
                self._written.wait(min(left, self._look_every_s))
