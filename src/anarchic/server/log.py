"""Log lines, one per event, which never stop the server.

Whoever logs puts a line into a queue; a thread writes it. A full disk, a pipe that nobody reads
and a flood of events cost lines, never time. Lines that were not written are counted, and the log
tells the count as soon as it can.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, final

from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.loglines import LEVELS, json_line, level_of, text_line

Log = Callable[..., None]  # writes one event: its name, and facts by their names
PER_SECOND = 20  # lines of one kind; more events of it are counted
MOST_LINES = 1000  # that wait to be written
FLUSH_S = 1.0  # how long the end of the process waits for lines to be written
IDLE_S = 5.0  # without lines for this long the thread ends; the next line starts another


@final
class JsonLog:
    """Writes one line per event to a stream (stderr), from any thread. Never raises or blocks.

    Events below ``level`` are not written. Lines are JSON objects, or with ``form="text"`` words.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Clock = SYSTEM, *,
        level: str = "info", form: str = "json",
    ) -> None:  # fmt: skip
        self._stream, self._clock = stream, clock
        self._least = LEVELS.index(level)
        self._line = text_line if form == "text" else json_line
        self._wake = threading.Condition()
        self._queue: deque[str] = deque()
        self._writing = False
        self._second = 0  # in which ``_seen`` counts
        self._seen: Counter[str] = Counter()  # events by kind, in this second
        self._limited: Counter[str] = Counter()  # those without a line, not told yet
        self._dropped = 0  # lines that could not be written, not told yet
        self._thread: threading.Thread | None = None
        self._torn = False  # the last line was written in part
        self._at_exit = False

    def __call__(self, event: str, **facts: Any) -> None:
        with suppress(Exception):
            if LEVELS.index(level_of(event, facts)) < self._least:
                return
        with suppress(Exception), self._wake:  # there may be no thread or memory to be had
            # Of each run of a server its own: one that floods the log hides no other's lines.
            kind = " ".join([event, *(str(facts[n]) for n in ("level", "run") if n in facts)])
            if self._is_one_too_many(kind):
                self._limited[kind] += 1
            elif len(self._queue) >= MOST_LINES:
                self._dropped += 1
            else:
                self._queue.append(self._line(event, facts))
            self._start()
            self._wake.notify_all()

    def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until all lines are written, or for this long."""
        with self._wake:
            self._second = 0  # tell now what would be told at the end of the second
            self._wake.notify_all()
            self._wake.wait_for(self._is_done, timeout_s)

    def _is_done(self) -> bool:
        return not (self._queue or self._limited or self._writing)

    def _is_one_too_many(self, kind: str) -> bool:
        if self._second_is_over():
            self._second = int(self._clock.monotonic())
            self._seen.clear()
        self._seen[kind] += 1
        return self._seen[kind] > PER_SECOND

    def _second_is_over(self) -> bool:
        return int(self._clock.monotonic()) != self._second

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        if not self._at_exit:
            atexit.register(self.flush)
            self._at_exit = True
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            text, lines = taken
            try:
                self._write(text)
            except Exception:  # of any kind: a full disk, a closed pipe
                lost = lines
            else:
                lost = 0
            with self._wake:
                self._dropped += lost
                self._writing = False
                self._wake.notify_all()

    def _take(self) -> tuple[str, int] | None:
        """The next text, and how many lines are lost with it; None after a while without any."""
        with self._wake:
            end = time.monotonic() + IDLE_S
            while not self._queue and not (self._limited and self._second_is_over()):
                if time.monotonic() > end and not self._limited:
                    self._thread = None
                    return None
                self._wake.wait(0.2 if self._limited else IDLE_S)
            self._writing = True
            if self._limited and self._second_is_over():
                each = self._limited.items()
                facts = ({"kind": kind, "events": count} for kind, count in each)
                text = "".join(self._line("log_limited", known) for known in facts)
                count = self._limited.total()
                self._limited.clear()
            else:
                text, count = self._queue.popleft(), 1
            if self._dropped:
                text = self._line("log_dropped", {"lines": self._dropped}) + text
                count += self._dropped
                self._dropped = 0
            return text, count

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stderr
        try:
            # Past Python's buffer: a thread that hangs in it would hang the end of the process.
            where = stream.fileno()
        except (OSError, ValueError, AttributeError):  # not a file
            stream.write(text)
            stream.flush()
            return
        data = memoryview((("\n" if self._torn else "") + text).encode())
        while data:
            try:
                data = data[os.write(where, data) :]
            except BlockingIOError:  # somebody else made the pipe so
                select.select([], [where], [], 1.0)
            self._torn = bool(data)


@final
class Seldom:
    """Lets a few events of each kind through per period, and counts the others."""

    def __init__(
        self, most: int, period_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._period_s, self._clock = most, period_s, clock
        self._seen: dict[Hashable, tuple[float, int]] = {}  # when the period began, events since

    def take(self, kind: Hashable) -> int | None:
        """None for one too many; otherwise how many were, in the period before."""
        now, left_out = self._clock(), 0
        began, seen = self._seen.get(kind, (now, 0))
        if now >= began + self._period_s:
            began, seen, left_out = now, 0, max(0, seen - self._most)
        self._seen[kind] = began, seen + 1
        return left_out if seen < self._most else None


def never_raising(log: Log) -> Log:
    """The caller's own log, whose errors are not the server's."""
    if isinstance(log, JsonLog):
        return log

    def quiet(event: str, **facts: Any) -> None:
        with suppress(Exception):
            log(event, **facts)

    return quiet


class _ToLog(logging.Handler):
    """Writes messages of Python's ``logging`` as lines of our log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            facts = {"level": record.levelname, "message": record.getMessage().strip()}
            if record.exc_info is not None and record.exc_info[1] is not None:
                facts["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
            self._log("http" if record.name.startswith("uvicorn") else "python", **facts)


@contextmanager
def catching(log: Log) -> Iterator[None]:
    """Let what others print become lines of the log: uvicorn, asyncio, warnings, dying threads.

    They would print to stderr themselves, and wait there for whoever should read it.
    """
    root, handler, former = logging.getLogger(), _ToLog(log), threading.excepthook

    def died(told: Any) -> None:  # threading's record
        name = told.thread.name if told.thread is not None else None
        trace = "".join(traceback.format_exception(told.exc_value))
        log("thread_died", thread=name, reason=repr(told.exc_value), trace=trace)

    root.addHandler(handler)
    threading.excepthook = died
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        threading.excepthook = former
        root.removeHandler(handler)
        if isinstance(log, JsonLog):
            log.flush()
