"""Whom a server picks."""

from __future__ import annotations

from numpy.random import Generator

_DRAWN = 4096  # numbers drawn at a time


class Picker:
    """Draws workers uniformly, of all or of those that are free. All are free at first."""

    def __init__(self, rng: Generator, workers: int) -> None:
        self._rng, self._workers = rng, workers
        self._numbers: list[float] = []
        self._free = list(range(workers))
        self._place = list(range(workers))  # in the list of the free, -1 where not

    def any(self) -> int:
        """Any worker."""
        return self._below(self._workers)

    def take(self) -> int | None:
        """A free worker, who is free no longer; None if there is none."""
        free, place = self._free, self._place
        if not free:
            return None
        at = self._below(len(free))
        worker, last = free[at], free.pop()
        if last != worker:
            free[at], place[last] = last, at
        place[worker] = -1
        return worker

    def put_back(self, worker: int) -> None:
        """It is free again."""
        if self._place[worker] < 0:
            self._place[worker] = len(self._free)
            self._free.append(worker)

    def _below(self, count: int) -> int:
        if not self._numbers:
            self._numbers = self._rng.random(_DRAWN)[::-1].tolist()
        return int(self._numbers.pop() * count)
