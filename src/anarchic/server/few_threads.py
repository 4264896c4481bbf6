"""Few threads for what all runs of a server do again and again: writing, and folding.

With threads of its own for each run, a server of many busy runs spends its time on handing Python's
lock from thread to thread. Here the runs that have something to do wait in one queue.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from typing import final

LONG_S = 0.02  # after which a piece of work holds up the others no longer
FAILED_S = 0.1  # pause after an error that nobody expected
SPARE = 4  # threads that wait for something to do

# Does some work. Returns the seconds until it wants to be called again though nobody wakes it (0:
# behind the others that wait), or None if there will never be more to do.
Piece = Callable[[], float | None]


@final
class RunWork:
    """What one run does in pieces: one at a time, each after somebody woke it."""

    def __init__(self, threads: FewThreads) -> None:
        self._threads = threads
        self.piece: Piece | None = None  # before it starts
        self.queued = self.running = self.again = False
        self.due_s = inf  # when it wakes by itself
        self.ended = threading.Event()

    def wake(self) -> None:
        """There is something to do."""
        self._threads.wake(self)

    def start(self, piece: Piece) -> None:
        self.piece = piece
        self.wake()

    def finish(self, timeout_s: float) -> None:
        """Wake it, and wait for the end of its last piece."""
        if self.piece is not None:
            self.wake()
            self.ended.wait(timeout_s)


@final
class OwnThread:
    """In place of a ``RunWork`` in a server of one run: the pieces have a thread of their own."""

    def __init__(self, name: str) -> None:
        self._name, self._woken = name, threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, piece: Piece) -> None:
        target = partial(self._run, piece)
        self._thread = threading.Thread(target=target, name=self._name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def finish(self, timeout_s: float) -> None:
        self.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, piece: Piece) -> None:
        while True:
            self._woken.clear()  # first: whoever wakes it during a piece wants another one
            pause_s = piece()
            if pause_s is None:
                return
            self._woken.wait(None if pause_s == inf else pause_s)


@final
class FewThreads:
    """Does pieces of jobs, ``at_once`` of them at the same time, each job behind the others.

    A piece that takes long, as where a store hangs, is no longer counted: another thread goes on.
    """

    def __init__(self, name: str, at_once: int = 1) -> None:
        self._name, self._at_once = name, at_once
        guard = threading.Lock()
        self._work = threading.Condition(guard)  # there is a piece to do
        self._time = threading.Condition(guard)  # there is something to look after
        self._ready: deque[RunWork] = deque()
        self._later: list[tuple[float, int, RunWork]] = []  # by when they wake by themselves
        self._numbers = count()
        self._taken: dict[RunWork, float] = {}  # when their pieces began; not of long ones
        self._waiting = 0  # threads
        self._dozes = False  # whoever looks after time
        self._closed = False

    def start(self) -> None:
        threading.Thread(target=self._look, name=f"{self._name}-time", daemon=True).start()

    def close(self) -> None:
        """Begin no more pieces."""
        with self._work:
            self._closed = True
            self._work.notify_all()
            self._time.notify_all()

    def work(self) -> RunWork:
        return RunWork(self)

    def wake(self, job: RunWork) -> None:
        with self._work:
            if job.running:
                job.again = True
            elif job.piece is not None and not job.queued:
                self._put(job)
                self._call()

    def _put(self, job: RunWork) -> None:
        job.queued, job.due_s = True, inf
        self._ready.append(job)

    def _call(self) -> None:
        """Let a thread take the next piece, if there is one and its time has come."""
        if self._closed or not self._ready or len(self._taken) >= self._at_once:
            return
        if self._waiting:
            self._waiting -= 1  # here, for it wakes later: the next call finds another one
            self._work.notify()
        else:
            try:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            except RuntimeError:  # none can be started now: ``_look`` tries again
                self._time.notify()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            pause_s: float | None = FAILED_S
            with suppress(BaseException):  # those whose work it was were told; go on
                assert job.piece is not None
                pause_s = job.piece()
            self._done(job, pause_s)

    def _next(self) -> RunWork | None:
        """Wait for a piece to do; None if there are threads enough."""
        with self._work:
            while not self._closed:
                if self._ready and len(self._taken) < self._at_once:
                    job = self._ready.popleft()
                    job.queued, job.running, job.again = False, True, False
                    self._taken[job] = time.monotonic()
                    if self._dozes:
                        self._time.notify()
                    return job
                if self._waiting >= SPARE:
                    return None
                self._waiting += 1
                self._work.wait()
            return None

    def _done(self, job: RunWork, pause_s: float | None) -> None:
        with self._work:
            self._taken.pop(job, None)
            job.running = False
            if pause_s is None:
                job.ended.set()
            elif job.again or pause_s <= 0:
                self._put(job)
            elif pause_s < inf:
                job.due_s = time.monotonic() + pause_s
                heapq.heappush(self._later, (job.due_s, next(self._numbers), job))
                if self._dozes:
                    self._time.notify()

    def _look(self) -> None:
        """Wake jobs whose time has come, and replace threads whose pieces take long."""
        with self._work:
            while not self._closed:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    due_s, _, job = heapq.heappop(self._later)
                    if job.due_s == due_s:  # otherwise somebody woke it before
                        self._put(job)
                        self._call()
                for job in [job for job, begun_s in self._taken.items() if now - begun_s >= LONG_S]:
                    del self._taken[job]
                    self._call()
                self._call()  # for a thread that could not be started before
                until_s = self._later[0][0] if self._later else inf
                if self._taken or self._ready:
                    until_s = min(until_s, now + LONG_S)
                self._dozes = not self._taken
                self._time.wait(None if until_s == inf else max(0.0, until_s - now))
                self._dozes = False


def work_of(threads: FewThreads | None, name: str) -> RunWork | OwnThread:
    """The work of a run, for the threads that all runs share, or for one of this name."""
    return OwnThread(name) if threads is None else threads.work()
