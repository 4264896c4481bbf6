"""The time, as the parts of a server read it: the system's, or one that a test moves."""

from __future__ import annotations

import time
from typing import Protocol, final


class Clock(Protocol):
    """It only tells the time. Whoever waits is told for how long at most."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""

    def time(self) -> float:
        """Seconds since 1970, for records."""


@final
class SystemClock:
    """The clock of this machine."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)


SYSTEM = SystemClock()
