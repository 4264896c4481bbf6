"""One stream of pictures per run, made once for all viewers.

The picture is made in a thread while anybody looks, at most once per ``LEAST_S`` and for at most
``SHARE`` of the time, whatever it costs, and at once after a command of an operator. What has
changed is encoded once; each viewer is sent the same bytes, at most ``BYTES_PER_S`` of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Any, final

from anarchic.page.numbers import encoded

LEAST_S, LONGEST_S = 1.0, 15.0  # between two pictures; a picture that costs too much is made anyway
SHARE = 0.02  # of one core, for making pictures
BYTES_PER_S = 32_768  # per viewer
MOST_BYTES = 262_144  # of one picture
HEARTBEAT_S = 10.0
FAILED = b'data: {"failure":"The picture cannot be made now; the log says why."}\n\n'


@final
class Stream:
    """Makes pictures with ``make``, in a thread, and hands them to all viewers.

    ``failed`` hears of the first of several pictures in a row that could not be made.
    """

    def __init__(
        self,
        make: Callable[[], Mapping[str, Any]],
        failed: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        self._make, self._failed = make, failed
        self._parts: dict[str, bytes] = {}
        self._changed: list[str] = []  # by the newest picture
        self._number = 0  # of the newest picture
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # while somebody looks
        self._due = asyncio.Event()
        self.viewers = 0
        self.closed = False
        self.failure: str | None = None

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self._wake()

    def soon(self) -> None:
        """Make a picture at once, from any thread: an operator waits for it."""
        if self._loop is not None and self.viewers:
            self._loop.call_soon_threadsafe(self._due.set)

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Server-sent events: the whole picture, and then what changes."""
        self.viewers += 1
        self._loop = asyncio.get_running_loop()
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._work())
            seen = -1
            while not self.closed:
                if seen == self._number or not self._parts:
                    yield await self._waited()
                    continue
                names = self._changed if seen == self._number - 1 else list(self._parts)
                seen = self._number
                yield self._event(names)
        finally:
            self.viewers -= 1

    async def _waited(self) -> bytes:
        """Wait for the next picture; a sign of life, or that there is none."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), HEARTBEAT_S)
        return FAILED if self.failure is not None else b": still here\n\n"

    def _event(self, names: list[str]) -> bytes:
        inside = b",".join(b'"%s":%s' % (name.encode(), self._parts[name]) for name in names)
        return b"id: %d\nevent: picture\ndata: {%s}\n\n" % (self._number, inside)

    async def _work(self) -> None:
        """Make pictures while somebody looks."""
        while self.viewers and not self.closed:
            size, cost_s = 0, 0.0
            self._due.clear()
            try:
                parts, cost_s = await asyncio.to_thread(self._picture)
                self._changed = [n for n, part in parts.items() if self._parts.get(n) != part]
                self._parts, self._number = parts, self._number + 1
                size, self.failure = sum(len(parts[name]) for name in self._changed), None
            except Exception as error:  # of any kind: the next picture may do
                if self.failure is None:
                    self._failed(error)
                self.failure = str(error) or repr(error)
            self._wake()
            if self._number == 1:  # it reads what later ones add to
                cost_s = 0.0
            pause_s = max(LEAST_S, cost_s / SHARE, size / BYTES_PER_S)
            await self._rest(min(pause_s, LONGEST_S))

    async def _rest(self, pause_s: float) -> None:
        """Until the next picture is due, or asked for."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._due.wait(), pause_s)

    def _picture(self) -> tuple[dict[str, bytes], float]:
        """A picture, encoded, and the seconds that it took of a core."""
        begun = time.thread_time()
        parts = _within({name: _encoded(part) for name, part in self._make().items()})
        return parts, time.thread_time() - begun

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _encoded(part: Any) -> bytes:
    return encoded(part).encode()


def _within(parts: dict[str, bytes]) -> dict[str, bytes]:
    """Without the largest parts, if they are too large together: names may be long."""
    while sum(map(len, parts.values())) > MOST_BYTES:
        del parts[max(parts, key=lambda name: len(parts[name]))]
    return parts
