"""Turns of runs that share a server: on the event loop, and on the threads beside it.

A run with many requests waits for its next turn behind the runs that have few. Without a run, as
in a server of one, nobody waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar, final

from anarchic.server.refusals import busy

RUN: ContextVar[str | None] = ContextVar("RUN", default=None)  # for which the task works
AT_ONCE = 4  # requests that begin in one pass of the event loop, one per run at least
MOST_WAITING = 4_096  # requests of one run: as many as there may be connections
PER_RUN, THREADS = 6, 1_024  # threads of one run, and of all

P = ParamSpec("P")
T = TypeVar("T")


@final
class Turns:
    """Begins requests in turns: those of the run that had its last turn longest ago come first."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the next run first
        self._pass: asyncio.Handle | None = None  # the next time that some may begin
        self._begun = 0  # requests, in this pass

    async def take(self, run: str) -> None:
        """Return when it is this run's turn."""
        loop = asyncio.get_running_loop()
        if self._pass is None:
            self._pass = loop.call_soon(self._begin_some)
        if not self._waiting and self._begun < AT_ONCE:
            self._begun += 1
            return
        turn = loop.create_future()
        queue = self._waiting.setdefault(run, deque())
        if len(queue) >= MOST_WAITING:
            raise busy(1.0, "Too many requests of this run are waiting.")
        queue.append(turn)
        await turn

    def _begin_some(self) -> None:
        self._begun = 0
        each = max(1, AT_ONCE // max(1, len(self._waiting)))
        for run in [*self._waiting]:
            queue = self._waiting.pop(run)
            begun = 0
            while queue and begun < each:
                turn = queue.popleft()
                if not turn.done():  # whoever waited may have left
                    turn.set_result(None)
                    begun += 1
            if queue:
                self._waiting[run] = queue  # behind the others
        again = asyncio.get_running_loop().call_soon
        self._pass = again(self._begin_some) if self._waiting else None


class _Call(NamedTuple):
    future: Future[Any]
    function: Callable[..., Any]
    given: tuple[Any, ...]
    named: dict[str, Any]


@final
class RunThreads(ThreadPoolExecutor):
    """Threads of which each run has a few, so that one whose store hangs does not hold them all.

    It is the event loop's own executor: ``asyncio.to_thread`` uses it.
    """

    def __init__(self) -> None:
        super().__init__(THREADS, thread_name_prefix="runs")
        self._busy: Counter[str | None] = Counter()
        self._queued: dict[str | None, deque[_Call]] = {}
        self._guard = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        run, future = RUN.get(), Future[T]()
        call = _Call(future, fn, args, kwargs)
        with self._guard:
            if self._busy[run] >= PER_RUN:
                self._queued.setdefault(run, deque()).append(call)
                return future
            self._busy[run] += 1
        super().submit(self._work, run, call)
        return future

    def _work(self, run: str | None, call: _Call | None) -> None:
        while call is not None:
            if call.future.set_running_or_notify_cancel():
                try:
                    call.future.set_result(call.function(*call.given, **call.named))
                except BaseException as error:
                    call.future.set_exception(error)
            call = self._next(run)

    def _next(self, run: str | None) -> _Call | None:
        with self._guard:
            queue = self._queued.get(run)
            if queue:
                return queue.popleft()
            self._queued.pop(run, None)
            self._busy[run] -= 1
            return None
