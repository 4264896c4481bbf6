"""Operations on vectors of the size of a model, piece by piece.

A rule does several operations per update. On whole vectors, each of them reads and writes all of
the memory and leaves a temporary as large as the model; on pieces that fit in the cache of a
processor, the numbers are read and written once. Threads share large models (NumPy releases the
interpreter's lock). Every number is computed from the numbers at the same place alone, so results
depend neither on the pieces nor on the threads.

The number of threads is one of the process: ``ANARCHIC_THREADS``, or ``switches.fold_threads`` for
the duration of a run.
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

CHUNK = 1 << 17  # numbers per piece: temporaries of this size stay in a second-level cache
STRETCH = 1 << 20  # numbers per piece that is read once only: no cache need hold it
SHARED = 1 << 20  # numbers in a vector above which threads save more time than they cost
MOST_THREADS = 4  # by default: memory is no faster with more


class _Threads:
    """How many threads this process uses, and the pool of them, made when it is first needed."""

    def __init__(self) -> None:
        self.count: int | None = None
        self.pool: ThreadPoolExecutor | None = None
        self.lock = threading.Lock()


_threads = _Threads()
_of_thread = threading.local()


def use_threads(threads: int | None) -> None:
    """Let compiled loops and sweeps over large vectors use N threads, in this process.

    None is ``ANARCHIC_THREADS``; without it, as many as there are cores, ``MOST_THREADS`` at most.
    """
    if threads is None:
        threads = _threads_wanted()
    if threads < 1:
        raise ConfigError(f"A sweep needs at least one thread, got {threads}.")
    with _threads.lock:
        if threads == _threads.count:
            return
        # Not shut down: another thread may be about to use the pool. It ends with its last use.
        _threads.count, _threads.pool = threads, None


def threads_in_use() -> int:
    """How many threads share a large vector."""
    if _threads.count is None:
        _threads.count = _threads_wanted()
    return _threads.count


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
    """Call ``part`` with 0, 1, ... ``threads`` - 1, each in its own thread: 0 in the caller's."""
    others = [_pool().submit(part, number) for number in range(1, threads)]
    try:
        part(0)
    finally:
        for other in others:
            other.result()


def scratch(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of ``count`` numbers, this thread's own until it asks for that dtype again."""
    arrays: dict[str, NDArray[Any]] = _of_thread.__dict__.setdefault("arrays", {})
    array = arrays.get(dtype.str)
    if array is None or len(array) < count:
        array = arrays[dtype.str] = np.empty(count, dtype)
    return array[:count]


def _threads_wanted() -> int:
    said = os.environ.get("ANARCHIC_THREADS", "")
    if said:
        if not said.isdecimal() or int(said) < 1:
            raise ConfigError(f"ANARCHIC_THREADS must be a number of threads, got {said!r}.")
        return int(said)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST_THREADS, cores or 1)


def _pool() -> ThreadPoolExecutor:
    with _threads.lock:
        if _threads.pool is None:
            _threads.pool = ThreadPoolExecutor(threads_in_use(), thread_name_prefix="sweep")
        return _threads.pool


def _after_fork() -> None:
    """A child has none of its parent's threads, and its copy of the lock may be held forever."""
    _threads.lock, _threads.pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
