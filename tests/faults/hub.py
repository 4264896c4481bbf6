"""Time and threads: greenlets that take turns, in an order that a seed decides.

``Hub`` knows the time and who may run. A task runs until it waits: for a lock, for a time, for
somebody to wake it. When nobody can run, the clock moves to the next time that somebody waits for.
``hub.threading`` and the other lookalikes have the parts of their namesakes that the server uses.
"""

from __future__ import annotations

import asyncio
import heapq
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

# A loop that polls every few milliseconds would cost too many turns.
SHORTEST_SLEEP_S, SHORTEST_WAIT_S = 0.02, 0.25


class Process:
    """Tasks that live and die together."""

    def __init__(self, name: str) -> None:
        self.name, self.dead = name, False
        self.paused_until = 0.0
        self.tasks: set[Task] = set()
        self.deaths: list[str] = []  # of threads, by exceptions that nothing caught
        self.traces: list[str] = []  # of these


class Task(greenlet):
    """One thread of control."""

    def __init__(self, hub: Hub, process: Process, run: Callable[[], object], name: str) -> None:
        super().__init__(parent=hub.main)
        self.hub, self.process, self.name, self._body = hub, process, name, run
        self.waiting = 0  # the number of its present wait; 0 while it does not wait
        self.woken = False
        self.finished: list[Task] = []  # tasks that wait for its end

    def run(self) -> None:
        try:
            self._body()
        except GreenletExit:
            pass
        except Exception as error:
            self.process.deaths.append(f"{self.name}: {error!r}")
            self.process.traces.append(traceback.format_exc())
        finally:
            self.process.tasks.discard(self)
            for task in self.finished:
                self.hub.wake(task)


class Hub:
    """The clock, and whose turn it is."""

    def __init__(self, rng: Random, switching: float = 0.0) -> None:
        self.rng, self.switching = rng, switching
        self.main = getcurrent()
        self.now, self.wall_offset = 1000.0, 1.7e9
        self.turns = 0
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task, int]] = []
        self._numbers = count(1)
        self.outside = Process("outside")

    @property
    def task(self) -> Task:
        found = getcurrent()
        assert isinstance(found, Task), "only a task can wait"
        return found

    def spawn(self, process: Process, run: Callable[[], object], name: str) -> Task:
        task = Task(self, process, run, name)
        process.tasks.add(task)
        self._ready.append(task)
        return task

    def wake(self, task: Task) -> None:
        if task.waiting:
            task.waiting, task.woken = 0, True
            self._ready.append(task)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until somebody wakes this task, or the time is over; whether it was woken."""
        task = self.task
        if task.process.dead:
            raise GreenletExit
        task.waiting, task.woken = next(self._numbers), False
        if timeout_s is not None:
            until = self.now + max(0.0, timeout_s)
            heapq.heappush(self._timers, (until, next(self._numbers), task, task.waiting))
        self._leave()
        return task.woken

    def sleep(self, seconds: float) -> None:
        end = self.now + max(seconds, SHORTEST_SLEEP_S)
        while self.now < end:
            self.wait(end - self.now)

    def maybe_switch(self) -> None:
        """Perhaps let others run first, as the system may at any moment."""
        here = getcurrent()
        if isinstance(here, Task):
            if here.process.dead:
                raise GreenletExit
            if self.switching and self.rng.random() < self.switching:
                self._ready.append(here)
                self._leave()

    def _leave(self) -> None:
        # Which event loop is running is known per system thread: it must not leak to others.
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            self.main.switch()
        finally:
            asyncio._set_running_loop(loop)

    def run_until(self, end: float, after_turn: Callable[[], None] = lambda: None) -> None:
        """Let everybody run up to this time."""
        while True:
            while self._ready:
                self._turn(self._ready.pop(self._choose()))
                after_turn()
            while self._timers and self._timers[0][2].waiting != self._timers[0][3]:
                heapq.heappop(self._timers)  # it was woken by then
            if not self._timers or self._timers[0][0] > end:
                self.now = max(self.now, end)
                return
            when, _, task, number = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            late = task.process.paused_until
            if late > self.now:
                heapq.heappush(self._timers, (late, next(self._numbers), task, number))
                continue
            task.waiting = 0
            self._ready.append(task)

    def _choose(self) -> int:
        return self.rng.randrange(len(self._ready)) if self.switching else 0

    def _turn(self, task: Task) -> None:
        self.turns += 1
        if task.process.dead or task.dead:
            return
        late = task.process.paused_until
        if late > self.now:  # a stopped process: it goes on later, as if nothing had happened
            number = next(self._numbers)
            task.waiting = number
            heapq.heappush(self._timers, (late, number, task, number))
            return
        task.switch()

    def kill(self, process: Process) -> None:
        """End a process; to be called from outside of it."""
        process.dead = True
        self._ready = [task for task in self._ready if task.process is not process]
        for task in sorted(process.tasks, key=lambda task: task.name):
            task.waiting = 0
            with suppress(GreenletExit):
                if not task.dead:
                    task.throw(GreenletExit)
        process.tasks.clear()


class Time:
    """In place of the module ``time``."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def monotonic(self) -> float:
        return self._hub.now

    perf_counter = monotonic

    def time(self) -> float:
        return self._hub.now + self._hub.wall_offset

    def sleep(self, seconds: float) -> None:
        self._hub.sleep(seconds)


class Lock:
    """In place of ``threading.Lock``, ``RLock`` and ``Semaphore``."""

    def __init__(self, hub: Hub, *, again: bool = False, places: int = 1) -> None:
        self._hub, self._again, self._free = hub, again, places
        self._owner: Any = None
        self._depth = 0
        self._queue: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        here = getcurrent()
        if self._again and self._depth and self._owner is here:
            self._depth += 1
            return True
        self._hub.maybe_switch()
        end = None if timeout is None or timeout < 0 else self._hub.now + timeout
        while not self._free:
            left = None if end is None else end - self._hub.now
            if not blocking or (left is not None and left <= 0):
                return False
            self._queue.append(self._hub.task)
            try:
                self._hub.wait(left)
            finally:
                with suppress(ValueError):
                    self._queue.remove(here)
        self._free -= 1
        self._owner, self._depth = here, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._again and self._depth:
            return
        self._free += 1
        if self._queue:
            self._hub.wake(self._queue[0])

    def locked(self) -> bool:
        return not self._free

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """In place of ``threading.Condition``."""

    def __init__(self, hub: Hub, lock: Lock | None = None) -> None:
        self._hub, self._lock = hub, lock or Lock(hub, again=True)
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._queue: list[Task] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        here = self._hub.task
        self._queue.append(here)
        depth, self._lock._depth = self._lock._depth, 1
        self._lock.release()
        try:
            return self._hub.wait(timeout and max(timeout, SHORTEST_WAIT_S))
        finally:
            with suppress(ValueError):
                self._queue.remove(here)
            self._lock.acquire()
            self._lock._depth = depth

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else self._hub.now + timeout
        while not (found := predicate()):
            left = None if end is None else end - self._hub.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        for task in self._queue[:n]:
            self._hub.wake(task)
        del self._queue[:n]

    def notify_all(self) -> None:
        self.notify(len(self._queue))


class Event:
    """In place of ``threading.Event``."""

    def __init__(self, hub: Hub) -> None:
        self._changed, self._set = Condition(hub), False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._changed.notify_all()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._changed:
            return bool(self._changed.wait_for(self.is_set, timeout))


class Thread:
    """In place of ``threading.Thread``."""

    def __init__(
        self, hub: Hub, group: None = None, target: Callable[..., object] = lambda: None,
        name: str = "thread", args: Any = (), kwargs: Any = None, daemon: bool | None = None,
    ) -> None:  # fmt: skip
        self._hub, self.name, self.daemon = hub, name, daemon
        self._run = lambda: target(*args, **(kwargs or {}))
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._hub.spawn(self._hub.task.process, self._run, self.name)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.dead and not self._task.process.dead

    def join(self, timeout: float | None = None) -> None:
        end = None if timeout is None else self._hub.now + timeout
        while self._task is not None and not self._task.dead:
            left = None if end is None else end - self._hub.now
            if left is not None and left <= 0:
                return
            self._task.finished.append(self._hub.task)
            self._hub.wait(left)


class Local:
    """In place of ``threading.local``."""

    def __init__(self) -> None:
        object.__setattr__(self, "_of", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._of[getcurrent()][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._of.setdefault(getcurrent(), {})[name] = value


@contextmanager
def no_loop() -> Iterator[None]:
    """For what is called by hand though an event loop may be running."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
