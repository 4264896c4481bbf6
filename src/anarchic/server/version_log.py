"""One line of the log per version, and on very fast runs one line for several versions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from statistics import median_low

from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.log import Log
from anarchic.server.records import FoldedUpdate

APART_S = 0.2  # between two lines; versions that come faster share one
WHO = 5  # workers that a line names
MOST_VALUES = 10_000  # values of staleness that a line is made of; more do not change its median


class VersionLog:
    """Tells the log of new versions. A line says from which version to which it tells."""

    def __init__(self, log: Log, m: int, clock: Clock = SYSTEM, *, each: bool = False) -> None:
        self.m, self._log, self._clock, self._each = m, log, clock, each
        self._lock = threading.Lock()
        self._told_s = self._last_s = clock.monotonic()  # the last line, the last version
        self._first: int | None = None  # version that no line has told yet
        self._last = 0
        self._updates, self._clipped = 0, 0
        self._staleness: list[int] = []
        self._losses: list[float] = []
        self._who: Counter[str] = Counter()

    def published(self, previous: int, version: int, folded: Sequence[FoldedUpdate]) -> None:
        """Versions after ``previous`` are there; ``folded`` are the updates in them."""
        with self._lock:
            self._first = previous + 1 if self._first is None else self._first
            self._last, self._last_s = version, self._clock.monotonic()
            self._updates += len(folded)
            self._clipped += sum(update.weight < 1 for update in folded)
            if len(self._staleness) < MOST_VALUES:
                self._staleness += [update.staleness for update in folded]
            self._losses += [update.loss for update in folded if update.loss is not None]
            self._who.update(update.worker for update in folded)
            if self._last_s - self._told_s >= APART_S:
                self._tell()
        if self._each:
            for update in folded:
                self._log("folded", version=version, **update._asdict())

    def flush(self) -> None:
        """Tell of versions that wait for others to share a line with."""
        with self._lock:
            if self._first is not None:
                self._tell()

    def _tell(self) -> None:
        facts = {"version": self._last}
        if self._first != self._last:
            facts["first"] = self._first or 0
        late, losses, who = self._staleness, self._losses, self._who
        self._log(
            "version",
            **facts,
            updates=self._updates,
            staleness_p50=median_low(late) if late else None,
            staleness_max=max(late, default=None),
            loss=sum(losses) / len(losses) if losses else None,
            seconds=round(self._last_s - self._told_s, 3),
            m=self.m,
            **({"clipped": self._clipped} if self._clipped else {}),
            workers=len(who),
            who=dict(who.most_common(WHO)),
        )
        self._told_s, self._first = self._last_s, None
        self._updates = self._clipped = 0
        self._staleness, self._losses, self._who = [], [], Counter()
