"""The clock of a worker; tests have their own."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import Protocol, final

DAY_S = 86_400.0


class Clock(Protocol):
    """What a worker needs to know of time."""

    def now_s(self) -> float:
        """The wall clock, seconds since 1970."""

    def elapsed_s(self) -> float:
        """Seconds since some moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait, or less if ``wake`` is called."""

    def wake(self) -> None:
        """End the present sleep, or the next; from a signal handler or another thread."""


@final
class WallClock:
    """Real time."""

    def __init__(self) -> None:
        # The only thing to wait for that a signal handler may safely use.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def now_s(self) -> float:
        return time.time()

    def elapsed_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            try:
                self._wakes.get(timeout=min(seconds, DAY_S))
            except Empty:
                return

    def wake(self) -> None:
        self._wakes.put(None)
