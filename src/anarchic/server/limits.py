"""Limits on what workers may do: how often, and how many at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from anarchic.server.refusals import Refusal

ALONE_S = 10.0  # without updates of others for this long, a worker counts as alone
FEW = 10_000  # buckets below which none are removed


class Pace:
    """A bucket of tokens per worker: up to ``burst`` at once, refilled at a rate."""

    def __init__(
        self, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic,
        told: str = "The worker sends more updates than it may.",
    ) -> None:  # fmt: skip
        self._rate, self._burst, self._clock, self._told = per_minute / 60, burst, clock, told
        self._buckets: dict[str, tuple[float, float]] = {}  # worker -> (tokens, when)
        self._most = FEW

    def take(self, worker: str) -> None:
        now = self._clock()
        tokens, since = self._buckets.get(worker, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        if tokens < 1:
            remedy, wait_s = "Wait as long as Retry-After says.", (1 - tokens) / self._rate
            raise Refusal(429, "slow_down", self._told, remedy, wait_s)
        self._buckets[worker] = (tokens - 1, now)
        if len(self._buckets) > self._most:
            self._remove_full(now)

    def _remove_full(self, now: float) -> None:
        """Remove buckets that are full again: they are like new ones."""
        full = self._burst / self._rate
        self._buckets = {w: b for w, b in self._buckets.items() if now - b[1] < full}
        self._most = max(FEW, 2 * len(self._buckets))  # so that the cost per update stays small


class Shares:
    """Counts the updates of each worker that wait for a step, and limits them to ``most``.

    So nobody fills the buffer alone, except while nobody else has brought an update for
    ``ALONE_S``: then the limit is ``alone``, and the run goes on though the others have left.
    """

    def __init__(self, most: int, alone: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._alone, self._clock = most, alone, clock
        # The last two workers that brought a new update (not a duplicate), and when. The first
        # entry stands for whoever may come soon after the start.
        self._last: list[tuple[str, float]] = [("", clock())]
        self._sending: Counter[str] = Counter()  # being made durable
        self._waiting: Counter[str] = Counter()  # durable, in no version yet
        self.total = 0  # of those that wait
        self._lock = threading.Lock()  # collecting and aggregating both write

    def limit(self, most: int, alone: int) -> None:
        """Other limits, as of a run whose m was changed."""
        with self._lock:
            self._most, self._alone = most, alone

    def take(self, worker: str) -> None:
        with self._lock:
            held = self._sending[worker] + self._waiting[worker]
            since = self._clock() - ALONE_S
            company = any(name != worker and when > since for name, when in self._last)
            if held >= (self._most if company else self._alone):
                told = f"Updates of this worker that wait for the next step already: {held}."
                remedy = "Wait until the version has changed."
                raise Refusal(429, "too_many_updates", told, remedy, retry_after_s=1.0)
            self._sending[worker] += 1

    def sent(self, worker: str, *, accepted: bool) -> None:
        """The end of what ``take`` began; before anybody can fold the update."""
        with self._lock:
            _take_off(self._sending, worker, 1)
            if accepted:
                self._waiting[worker] += 1
                self.total += 1
                others = [last for last in self._last if last[0] != worker]
                self._last = [*others[-1:], (worker, self._clock())]

    def folded(self, workers: Counter[str]) -> None:
        """A version holds these now."""
        with self._lock:
            for worker, count in workers.items():
                self.total -= _take_off(self._waiting, worker, count)

    def reset(self, waiting: Counter[str]) -> None:
        """What the store says is waiting."""
        with self._lock:
            self._waiting, self.total = waiting, waiting.total()


def _take_off(counts: Counter[str], worker: str, count: int) -> int:
    """Subtract at most what is there, and return it. (``-=`` would visit every worker.)"""
    if counts[worker] > count:
        counts[worker] -= count
        return count
    return counts.pop(worker, 0)
