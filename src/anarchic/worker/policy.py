"""When a worker takes part, how many local steps it takes, and its clock. It alone decides.

Random idle times (``Exponential``), ``ConstantSteps`` and ``UniformSteps`` are the simulator's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from queue import Empty, SimpleQueue
from typing import Protocol, final

from anarchic.errors import ConfigError
from anarchic.participation.idle import Moment

DAY_S = 86_400.0


class Policy(Protocol):
    """When the next visit begins."""

    def delay_s(self, moment: Moment) -> float:
        """Seconds to wait from now; it is called again after that, until it returns 0."""


class StepCount(Protocol):
    """How many local steps a visit takes, K."""

    def more(self, done: int, elapsed_s: float, chance: float) -> bool:
        """Whether to take another step after ``done``, which took ``elapsed_s`` in all.

        ``chance`` is uniform on [0, 1) and drawn once per visit.
        """


@final
@dataclass(frozen=True, slots=True)
class Always:
    """One visit after another."""

    def delay_s(self, moment: Moment) -> float:
        return 0.0


@final
@dataclass(frozen=True, slots=True)
class Every:
    """A visit every ``minutes``, from beginning to beginning; the first at once."""

    minutes: float

    def __post_init__(self) -> None:
        _positive("Every", "minutes", self.minutes)

    def delay_s(self, moment: Moment) -> float:
        due = moment.began_s + 60 * self.minutes
        return max(0.0, due - moment.now_s) if moment.visits else 0.0


@final
@dataclass(frozen=True, slots=True)
class Hours:
    """Visits begin only between two hours of the day; ``Hours(22, 6)`` is at night.

    Hours are local time unless ``tz`` is given, and may have fractions.
    """

    from_h: float
    until_h: float
    tz: tzinfo | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.from_h < 24 and 0 <= self.until_h <= 24 and self.from_h != self.until_h):
            raise ConfigError(
                f"Hours needs two different hours of the day, got {self.from_h} to {self.until_h}."
            )

    def delay_s(self, moment: Moment) -> float:
        now = datetime.fromtimestamp(moment.now_s, self.tz)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        hour = (now - midnight).total_seconds() / 3600
        if self.from_h < self.until_h:
            inside = self.from_h <= hour < self.until_h
        else:
            inside = hour >= self.from_h or hour < self.until_h
        if inside:
            return 0.0
        days = 0 if hour < self.from_h else 1
        opens = midnight + timedelta(days=days, hours=self.from_h)
        return max(1e-3, opens.timestamp() - moment.now_s)


@final
@dataclass(frozen=True, slots=True)
class When:
    """A visit when a function returns true, such as on mains power. Called every ``poll_s``."""

    ready: Callable[[], bool]
    poll_s: float = 60.0

    def __post_init__(self) -> None:
        _positive("When", "poll_s", self.poll_s)

    def delay_s(self, moment: Moment) -> float:
        return 0.0 if self.ready() else self.poll_s


@final
@dataclass(frozen=True, slots=True)
class Both:
    """A visit when two policies agree, such as every hour, but only at night."""

    one: Policy
    other: Policy

    def delay_s(self, moment: Moment) -> float:
        return max(self.one.delay_s(moment), self.other.delay_s(moment))


@final
@dataclass(frozen=True, slots=True)
class TimeBudget:
    """As many local steps as fit into this time, by the mean of those done; at least one."""

    seconds: float

    def __post_init__(self) -> None:
        _positive("TimeBudget", "seconds", self.seconds)

    def more(self, done: int, elapsed_s: float, chance: float) -> bool:
        return done == 0 or elapsed_s + elapsed_s / done <= self.seconds


def _positive(kind: str, name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{kind} needs {name} > 0, got {name}={value}.")


class WorkerClock(Protocol):
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
