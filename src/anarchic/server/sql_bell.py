"""How a thread waits for news in the database without missing any."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import final


@final
class Bell:
    """Rung after a write. Each thread that waits hears every ring since it last returned.

    ``look`` tells of writes that ring no bell, those of other processes; it is compared with what
    the same thread saw before, every ``look_every_s`` while waiting.
    """

    def __init__(self, look: Callable[[], object] = lambda: None, look_every_s: float = 60) -> None:
        self._look = look
        self._look_every_s = look_every_s
        self._rung = threading.Condition()
        self._rings = 0
        self._heard = threading.local()

    def ring(self) -> None:
        with self._rung:
            self._rings += 1
            self._rung.notify_all()

    def wait(self, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        with self._rung:
            while True:
                now = (self._rings, self._look())
                left = end - time.monotonic()
                if now != getattr(self._heard, "last", None) or left <= 0:
                    self._heard.last = now
                    return
                self._rung.wait(min(left, self._look_every_s))
