"""An event queue: the timetable of workers whose timing depends on the server.

It knows of versions only their numbers, so the timetable still comes before training.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np
from numpy.random import Generator

from anarchic.participation.coupling import Coupling
from anarchic.participation.drawing import IN_VAIN, too_few
from anarchic.participation.ledger import Ledger
from anarchic.participation.picking import Picker
from anarchic.participation.plans import Plans
from anarchic.participation.timetable import Timetable
from anarchic.participation.wasted import LOST, REFUSED, RETRIED, SKIPPED, STOPPED

# Events at one time, in this order: updates come in, the timer steps, a cohort begins, workers
# pull (PULL asks for a place, START has one), the server picks. Then by the number of the worker.
PUSH, STEP, COHORT, PULL, START, PICK = range(6)
BLOCK = 1 << 16  # rows of a stretch of the timetable


def coupled_tables(
    plans: Plans,
    coupling: Coupling,
    *,
    workers: int,
    m: int,
    end: tuple[int | None, float | None],
    rng: Generator,
) -> Iterator[Timetable]:
    """The timetable in stretches of whole rounds; at least one, which may be empty.

    ``end`` is the number of rounds and the time at which it ends. ``rng`` is for what the server
    draws.
    """
    coupling.check(workers, m)
    queue = Queue(plans, coupling, workers, m, rng)
    rounds, until_s = end
    while True:
        want = queue.version + max(1, BLOCK // m)
        want = want if rounds is None else min(want, rounds)
        whole = queue.advance(want, np.inf if until_s is None else until_s)
        if not whole and until_s is None:
            raise too_few(queue.version * m, queue.now_s, (rounds or 0) * m)
        table = queue.table(last=not whole or want == rounds)
        yield table
        if not whole or want == rounds:
            return


class Queue:
    """Workers, the server and the events between them. Keeps a few numbers per worker."""

    def __init__(
        self, plans: Plans, coupling: Coupling, workers: int, m: int, rng: Generator
    ) -> None:
        self._plans, self._coupling, self._m, self._workers = plans, coupling, m, workers
        self._ledger = Ledger(workers, m, timed=coupling.step_every_s is not None)
        self.now_s = 0.0
        self._heap: list[tuple[float, int, int]] = []
        self._on = self._push, self._timer, self._cohort, self._pull, self._start, self._pick
        # Of each worker: since when it is free, and of its work the base, the times and the steps.
        self._free_s = array("d", bytes(8 * workers))
        self._base = array("q", bytes(8 * workers))
        self._pull_s = array("d", bytes(8 * workers))
        self._end_s = array("d", [-1.0]) * workers  # -1 where it does not work
        self._steps = array("i", bytes(4 * workers))
        self._failed = bytearray(workers)
        self._sent = array("q", [-1]) * workers  # the base of its last update that was taken
        self._tries = array("i", bytes(4 * workers))  # refusals in a row
        self._working = 0  # with a server that picks: jobs under way
        self._cohort_of: list[int] = []
        self._waiting: deque[int] = deque()  # for a place
        self._waiting_for_news: list[int] = []
        self._jobs: dict[int, deque[tuple[int, float]]] = {}  # picked while at work: base, pull_s
        self._armed = False  # whether the timer runs
        self._in_vain = 0  # visits since the last version
        self._picker = Picker(rng, workers) if coupling.server_picks else None
        plans.draw()
        self._begin()

    @property
    def version(self) -> int:
        return self._ledger.version

    def advance(self, version: int, until_s: float) -> bool:
        """Go on until a version; False if it is not reached in time, or never."""
        heap, ledger, most = self._heap, self._ledger, 100 * self._m + IN_VAIN
        while ledger.version < version:
            if not heap or heap[0][0] > until_s or self._in_vain > most:
                return False
            self.now_s, kind, worker = heappop(heap)
            self._on[kind](self.now_s, worker)
        return True

    def table(self, *, last: bool) -> Timetable:
        """The whole rounds since the last call."""
        table = self._ledger.table()
        if not last:
            return table
        begun = {base for base, end_s in zip(self._base, self._end_s, strict=True) if end_s >= 0}
        begun |= {base for jobs in self._jobs.values() for base, _ in jobs}
        return self._ledger.last(table, begun)

    def _begin(self) -> None:
        if self._coupling.server_picks == "cohort":
            heappush(self._heap, (0.0, COHORT, 0))
        elif self._coupling.server_picks:
            for job in range(self._coupling.jobs(self._m)):
                heappush(self._heap, (0.0, PICK, job))
        else:
            for worker in range(self._workers):
                self._idle(0.0, worker)

    def _idle(self, now_s: float, worker: int) -> None:
        self._free_s[worker] = now_s
        pull_s = self._plans.next_s(worker, now_s)
        if pull_s < np.inf:
            heappush(self._heap, (pull_s, PULL, worker))

    def _pull(self, now_s: float, worker: int) -> None:
        """A worker wants to pull."""
        plans = self._plans
        while not plans.is_drawn(worker):
            if not plans.draw():
                return
            pull_s = plans.next_s(worker, self._free_s[worker])
            if pull_s > now_s:
                if pull_s < np.inf:
                    heappush(self._heap, (pull_s, PULL, worker))
                return
        limit = self._coupling.max_concurrent
        if limit is not None and self._working >= limit:
            self._waiting.append(worker)
            return
        self._working += 1
        self._start(now_s, worker)

    def _start(self, now_s: float, worker: int) -> None:
        """A worker has a place and pulls, unless it is too late or there is nothing new."""
        if now_s >= self._plans.closes_s(worker, now_s):
            self._end_visit(now_s, worker)
        elif self._coupling.skip_unchanged and self._sent[worker] == self.version:
            self._skip(now_s, worker)
        else:
            self._work(now_s, worker, self.version, now_s)

    def _skip(self, now_s: float, worker: int) -> None:
        self._ledger.note(SKIPPED)
        self._in_vain += 1
        self._plans.take(worker)
        self._free_s[worker] = now_s
        self._make_room(now_s)
        pull_s = self._plans.next_s(worker, now_s)
        if pull_s <= now_s:
            self._waiting_for_news.append(worker)
        elif pull_s < np.inf:
            heappush(self._heap, (pull_s, PULL, worker))

    def _work(self, now_s: float, worker: int, base: int, pull_s: float) -> None:
        self._in_vain += 1
        plan = self._plans.take(worker)
        if plan is None:  # it has left
            self._replace(now_s, worker)
            self._end_visit(now_s, worker)
            return
        # The same number where nothing has moved, and not only up to rounding.
        undisturbed = now_s == plan.pull_s
        end_s = plan.end_s if undisturbed else now_s + (plan.end_s - plan.pull_s)
        failed = plan.failed
        if end_s > (closes_s := self._plans.closes_s(worker, now_s)):
            end_s, failed = closes_s, True
        self._base[worker], self._pull_s[worker], self._end_s[worker] = base, pull_s, end_s
        self._steps[worker], self._failed[worker] = plan.local_steps, failed
        heappush(self._heap, (end_s, PUSH, worker))

    def _push(self, now_s: float, worker: int) -> None:
        """A visit ends: its update comes in, or is lost."""
        if self._end_s[worker] != now_s:
            return  # it was stopped before
        self._end_s[worker] = -1.0
        base, bound = self._base[worker], self._coupling.refuse_staleness
        if self._failed[worker]:
            self._ledger.note(LOST)
            self._replace(now_s, worker)
        elif bound is not None and self.version - base > bound:
            self._ledger.note(REFUSED, self._steps[worker])
            if self._tries[worker] < self._coupling.retries:
                self._tries[worker] += 1
                self._ledger.note(RETRIED)
                heappush(self._heap, (now_s, START, worker))
                return
        else:
            self._accept(now_s, worker, base)
        self._tries[worker] = 0
        self._end_visit(now_s, worker)

    def _accept(self, now_s: float, worker: int, base: int) -> None:
        times = self._pull_s[worker], now_s
        self._ledger.accept(worker, base, self._steps[worker], times)
        self._sent[worker] = base
        if self._ledger.count == self._m:
            self._step(now_s)
        elif self._coupling.step_every_s is not None and not self._armed:
            self._armed = True
            period_s = self._coupling.step_every_s
            tick = int(now_s // period_s)
            while tick * period_s < now_s:
                tick += 1
            heappush(self._heap, (tick * period_s, STEP, 0))

    def _timer(self, now_s: float, _: int) -> None:
        self._armed = False
        if self._ledger.count:
            self._step(now_s)

    def _step(self, now_s: float) -> None:
        for worker in self._cohort_of:  # counted in the round that ends
            if self._end_s[worker] > now_s:
                self._stop(now_s, worker)
        self._ledger.step(now_s)
        self._in_vain = 0
        for worker in self._waiting_for_news:
            heappush(self._heap, (now_s, PULL, worker))
        self._waiting_for_news.clear()
        if self._coupling.server_picks == "cohort":
            heappush(self._heap, (now_s, COHORT, 0))

    def _end_visit(self, now_s: float, worker: int) -> None:
        """A place is free, and the worker too."""
        if self._picker is None:
            self._make_room(now_s)
            self._idle(now_s, worker)
            return
        self._working -= 1
        if self._coupling.server_picks == "free":
            self._picker.put_back(worker)
            heappush(self._heap, (now_s, PICK, worker))
        elif self._coupling.server_picks == "random":
            heappush(self._heap, (now_s, PICK, worker))
            if jobs := self._jobs.get(worker):
                base, pull_s = jobs.popleft()
                if not jobs:
                    del self._jobs[worker]
                self._work(now_s, worker, base, pull_s)

    def _make_room(self, now_s: float) -> None:
        if self._waiting:
            heappush(self._heap, (now_s, START, self._waiting.popleft()))
        else:
            self._working -= 1

    def _pick(self, now_s: float, _: int) -> None:
        """The server gives out a job."""
        assert self._picker is not None
        if self._working == self._coupling.jobs(self._m):
            return  # of a cohort that was stopped
        everyone = self._coupling.server_picks == "random"
        worker = self._picker.any() if everyone else self._picker.take()
        if worker is None:
            return
        self._working += 1
        if self._coupling.server_picks == "cohort":
            self._cohort_of.append(worker)
        if self._end_s[worker] >= 0:
            self._jobs.setdefault(worker, deque()).append((self.version, now_s))
        else:
            self._work(now_s, worker, self.version, now_s)

    def _replace(self, now_s: float, worker: int) -> None:
        """Another worker takes the place in a cohort of one that failed."""
        if self._coupling.server_picks == "cohort":
            heappush(self._heap, (now_s, PICK, worker))

    def _cohort(self, now_s: float, _: int) -> None:
        """Stop whoever still works, and begin anew with others."""
        assert self._picker is not None
        for worker in self._cohort_of:
            self._picker.put_back(worker)
            if self._end_s[worker] >= 0:
                self._stop(now_s, worker)
        self._cohort_of.clear()
        self._working = 0
        for job in range(self._coupling.jobs(self._m)):
            self._pick(now_s, job)

    def _stop(self, now_s: float, worker: int) -> None:
        begun_s, end_s = self._pull_s[worker], self._end_s[worker]
        self._end_s[worker] = -1.0
        done = (now_s - begun_s) / max(end_s - begun_s, 1e-300)
        self._ledger.note(STOPPED, int(done * self._steps[worker]))
