"""What each worker plans: its visits as they were drawn, one after the other, to be moved in time.

They come from the stretches that ``make_timetable`` draws too, so that a server that changes
nothing leads to the same timetable, and what a server does changes no draw.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

from anarchic.participation.drawing import Drawing
from anarchic.participation.visits import Drawn, Participation, Visits, VisitStream


class Plan(NamedTuple):
    """One visit as it was drawn: undisturbed, it pulls at ``pull_s``."""

    pull_s: float
    end_s: float
    failed: bool
    local_steps: int


class PlanSource(Protocol):
    """Stretches of drawn visits, in order of time."""

    @property
    def horizon_s(self) -> float:
        """Up to which all visits are drawn."""

    @property
    def ended(self) -> bool:
        """Whether there are no more stretches."""

    def more(self) -> Drawn:
        """The next stretch."""

    def pending_s(self, worker: int) -> float | None:
        """When a worker makes the first visit that is not drawn yet, None if that is not known."""

    def moved_s(self, worker: int, free_s: float, pull_s: float, now_s: float) -> float:
        """When a worker pulls that is free at ``now_s`` instead of ``free_s``, by the same draw."""

    def closes_s(self, worker: int, now_s: float) -> float:
        """When a worker that is available now ceases to be; not later than now if it is not."""


class RecordedSource:
    """Visits that were recorded: there are no more."""

    horizon_s = np.inf

    def __init__(self, visits: Visits) -> None:
        self._visits, self.ended = visits, False

    def more(self) -> Drawn:
        self.ended = True
        return Drawn.of(self._visits)

    def pending_s(self, worker: int) -> float | None:
        return np.inf

    def moved_s(self, worker: int, free_s: float, pull_s: float, now_s: float) -> float:
        return max(now_s + (pull_s - free_s), now_s)

    def closes_s(self, worker: int, now_s: float) -> float:
        return np.inf


class ProcessSource:
    """The visits of a process, in the stretches in which ``make_timetable`` draws them."""

    def __init__(self, process: Participation, rng: Generator, workers: int, m: int) -> None:
        self._begun = _Listened(process)
        self._drawing = Drawing(self._begun, rng, workers, m)
        self._first = True

    @property
    def horizon_s(self) -> float:
        return 0.0 if self._first else self._drawing.horizon_s

    @property
    def ended(self) -> bool:
        return not self._first and self._drawing.ended

    def more(self) -> Drawn:
        if not self._first:
            self._drawing.go_on()
        self._first = False
        return self._begun.stream.drawn

    def pending_s(self, worker: int) -> float | None:
        pending = getattr(self._begun.stream.inner, "pending_s", None)
        return None if pending is None else pending(worker)

    def moved_s(self, worker: int, free_s: float, pull_s: float, now_s: float) -> float:
        moved = getattr(self._begun.stream.inner, "moved_s", None)
        if moved is None:
            return max(now_s + (pull_s - free_s), now_s)
        return float(moved(worker, free_s, pull_s, now_s))

    def closes_s(self, worker: int, now_s: float) -> float:
        closes = getattr(self._begun.stream.inner, "closes_s", None)
        return np.inf if closes is None else float(closes(worker, now_s))


class _Listened:
    """A process whose last stretch can be looked at as it was drawn."""

    def __init__(self, process: Participation) -> None:
        self._process = process

    @property
    def pace_s(self) -> float:
        return self._process.pace_s

    def begin(self, rng: Generator, workers: int) -> _ListenedStream:
        self.stream = _ListenedStream(self._process.begin(rng, workers))
        return self.stream


class _ListenedStream:
    def __init__(self, inner: VisitStream) -> None:
        self.inner = inner

    @property
    def next_s(self) -> float:
        return self.inner.next_s

    def until(self, horizon_s: float) -> Visits:
        draw = getattr(self.inner, "draw", None)
        self.drawn: Drawn = (
            Drawn.of(self.inner.until(horizon_s)) if draw is None else draw(horizon_s)
        )
        return self.drawn.visits


class _Stretch:
    """One stretch, sorted by worker; memory views, for they give Python's own numbers."""

    def __init__(self, drawn: Drawn) -> None:
        visits = drawn.visits
        order = np.argsort(visits.worker, kind="stable")
        self.left = len(order)  # visits that are not taken
        self.worker = _view(visits.worker[order].astype(np.int32, copy=False))
        self.pull_s, self.end_s, self.free_s, self.failed = (
            _view(column[order])
            for column in (visits.pull_s, drawn.end_s, drawn.free_s, drawn.failed)
        )
        self.steps = _view(visits.local_steps[order].astype(np.int32, copy=False))


class Plans:
    """The next visit of each worker. Keeps a few numbers per worker and what is not taken yet."""

    def __init__(self, source: PlanSource, workers: int) -> None:
        self._source = source
        self._stretches: dict[int, _Stretch] = {}
        self._count = 0  # stretches that were drawn
        self._stretch = array("q", bytes(8 * workers))  # where each worker's next visit is
        self._row = array("q", b"\xff" * (8 * workers))  # in its stretch; -1 if not known
        self._free_s = array("d", bytes(8 * workers))  # since when it idles, undisturbed

    def next_s(self, worker: int, now_s: float) -> float:
        """When a worker pulls next that is free now; inf if it never comes again.

        Where the visit is not drawn yet, a time at which to ask again.
        """
        found = self._find(worker)
        pull_s = self._source.pending_s(worker) if found is None else found[0].pull_s[found[1]]
        if pull_s is None:
            ended = self._source.ended
            return np.inf if ended else max(now_s, self._source.horizon_s)
        if found is None and self._source.ended:
            return np.inf
        free_s = self._free_s[worker]
        if now_s == free_s or pull_s == np.inf:
            return pull_s
        return self._source.moved_s(worker, free_s, pull_s, now_s)

    def is_drawn(self, worker: int) -> bool:
        return self._find(worker) is not None

    def draw(self) -> bool:
        """Draw the next stretch; False if there is none."""
        if self._source.ended:
            return False
        drawn = self._source.more()
        if len(drawn.visits):
            self._stretches[self._count] = _Stretch(drawn)
        self._count += 1
        return True

    def take(self, worker: int) -> Plan | None:
        """The next visit of a worker, drawn if need be; None if it never comes again."""
        while (found := self._find(worker)) is None:
            if self._source.pending_s(worker) == np.inf or not self.draw():
                return None
        stretch, row = found
        self._row[worker] = row + 1
        self._free_s[worker] = stretch.free_s[row]
        plan = Plan(
            stretch.pull_s[row], stretch.end_s[row], stretch.failed[row], stretch.steps[row]
        )
        stretch.left -= 1
        if stretch.left == 0:
            del self._stretches[self._stretch[worker]]
        return plan

    def closes_s(self, worker: int, now_s: float) -> float:
        """When the window ends in which a worker is now; not later than now if it is in none."""
        return self._source.closes_s(worker, now_s)

    def _find(self, worker: int) -> tuple[_Stretch, int] | None:
        at = self._stretch[worker]
        while at < self._count:
            stretch = self._stretches.get(at)
            if stretch is not None:
                row = self._row[worker]
                if row < 0:
                    row = self._row[worker] = bisect_left(stretch.worker, worker)
                if row < len(stretch.worker) and stretch.worker[row] == worker:
                    return stretch, row
            at += 1
            self._stretch[worker], self._row[worker] = at, -1
        return None


def _view(column: Any) -> memoryview[Any]:  # NumPy's arrays are buffers; its types do not say so
    return memoryview(column)
