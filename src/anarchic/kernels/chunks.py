"""Sweeps over vectors of the size of a model, piece by piece.

A rule does several operations an update. Done on whole vectors, each of them goes through the
memory on its own and leaves a temporary as large as the model; done on pieces that fit in the
cache of a processor, the numbers come in and go out once. Large models are shared between
threads (NumPy lets go of the interpreter). Every number is computed from the numbers of its own
place alone, so neither the pieces nor the threads show in the results.

The threads are a setting of the process: ``ANARCHIC_THREADS``, or ``use_threads``, which a
simulated run calls with its own setting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import ConfigError

CHUNK = 1 << 17  # numbers a piece: what is made of one stays in a second-level cache
STRETCH = 1 << 20  # numbers of a piece that is gone through once: no cache need hold it
SHARED = 1 << 20  # numbers above which threads save more than they cost
MOST_THREADS = 4  # by default: more do not make a memory faster


class _Crew:
    """The threads of this process, made when they are first needed."""

    def __init__(self) -> None:
        self.threads: int | None = None
        self.pool: ThreadPoolExecutor | None = None
        self.lock = threading.Lock()


_crew = _Crew()
_own = threading.local()


def use_threads(threads: int | None) -> None:
    """Let compiled loops and sweeps over large vectors use so many threads, in this process.

    None is ``ANARCHIC_THREADS``; without it, as many as there are cores, ``MOST_THREADS`` at most.
    """
    if threads is None:
        threads = _threads_wanted()
    if threads < 1:
        raise ConfigError(f"A sweep needs at least one thread, got {threads}.")
    with _crew.lock:
        if threads == _crew.threads:
            return
        _crew.threads = threads
        pool, _crew.pool = _crew.pool, None
    if pool is not None:
        pool.shutdown()


def threads_in_use() -> int:
    """How many threads share a large vector."""
    if _crew.threads is None:
        _crew.threads = _threads_wanted()
    return _crew.threads


def sweep(dim: int, work: Callable[[slice], object], *, chunk: int = CHUNK) -> None:
    """Call ``work`` on every piece of ``range(dim)``; it must touch nothing outside its piece."""
    if dim <= chunk:
        work(slice(0, dim))
        return
    pieces = -(-dim // chunk)
    threads = min(threads_in_use(), pieces) if dim > SHARED else 1

    def part(number: int) -> None:
        for piece in range(pieces * number // threads, pieces * (number + 1) // threads):
            work(slice(piece * chunk, min((piece + 1) * chunk, dim)))

    share(threads, part)


def share(threads: int, part: Callable[[int], object]) -> None:
    """Call ``part`` with 0, 1, ... below ``threads``, each in a thread of its own: 0 in this."""
    others = [_pool().submit(part, number) for number in range(1, threads)]
    try:
        part(0)
    finally:
        for other in others:
            other.result()


def scratch(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Room for ``count`` numbers, this thread's own until it asks for that dtype again."""
    rooms: dict[str, NDArray[Any]] = _own.__dict__.setdefault("rooms", {})
    room = rooms.get(dtype.str)
    if room is None or len(room) < count:
        room = rooms[dtype.str] = np.empty(count, dtype)
    return room[:count]


def _threads_wanted() -> int:
    said = os.environ.get("ANARCHIC_THREADS", "")
    if said:
        if not said.isdecimal() or int(said) < 1:
            raise ConfigError(f"ANARCHIC_THREADS must be a number of threads, got {said!r}.")
        return int(said)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST_THREADS, cores or 1)


def _pool() -> ThreadPoolExecutor:
    with _crew.lock:
        if _crew.pool is None:
            _crew.pool = ThreadPoolExecutor(threads_in_use(), thread_name_prefix="sweep")
        return _crew.pool


def _after_fork() -> None:
    """A child has none of its parent's threads, and perhaps a lock that nobody will open."""
    _crew.lock, _crew.pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
