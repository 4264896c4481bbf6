"""Switches that hold for the whole process, set for the duration of a ``with`` and put back.

And the threads that compute lanes, which have switches of their own.

>>> from anarchic.kernels.chunks import threads_in_use
>>> before = threads_in_use()
>>> with fold_threads(3):
...     threads_in_use()
3
>>> threads_in_use() == before
True
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier
from typing import Any

from anarchic.kernels import chunks, loops


@contextmanager
def fold_threads(threads: int | None) -> Iterator[None]:
    """Let N threads share a large vector and compiled visits; None: the default of the machine."""
    before = chunks.threads_in_use()
    chunks.use_threads(threads)
    try:
        yield
    finally:
        chunks.use_threads(before)


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Let torch compute with N threads; None: as many as now. Nothing, where torch is not loaded.

    Enter it after the task was made: making a task loads torch if it needs it.
    """
    torch = sys.modules.get("torch")
    if torch is None or threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Let GPUs round the factors of float32 products to TF32, unless ``precision`` is "ieee"."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = precision != "ieee"
        yield
    finally:
        for backend, allowed in zip(backends, before, strict=True):
            backend.allow_tf32 = allowed


@contextmanager
def expected_folds(numbers: int) -> Iterator[None]:
    """Use compiled loops on shorter vectors too, if this many numbers pay for loading Numba."""
    before = loops.shortest()
    loops.expect(numbers)
    try:
        yield
    finally:
        loops.use_from(before)


@cache
def lane_threads(threads: int, process: int) -> ThreadPoolExecutor:
    """The threads of this process: a fork has none of its parent's. Each computes alone."""
    pool, torch = ThreadPoolExecutor(threads, "lanes"), sys.modules.get("torch")
    if torch is not None:
        own, all_here = torch.get_num_threads(), Barrier(threads)

        def compute_alone(_: int) -> None:
            all_here.wait()  # so that every thread of the pool does it
            torch.get_num_threads()  # the first call in a thread sets its number to the default
            torch.set_num_threads(1)

        deque(pool.map(compute_alone, range(threads)), maxlen=0)
        torch.set_num_threads(own)  # what a thread sets is also the default of threads to come
    return pool
