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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier, Lock
from typing import Any

from anarchic.kernels import chunks, loops
from anarchic.kernels.chunks import CHUNK


class _Switch:
    """A value of the whole process, set while somebody wants it and then put back.

    Where runs overlap, in one thread or in several, the one that began last decides.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self._read, self._write = read, write
        self._wanted: dict[object, Any] = {}  # by run, the latest last
        self._before: Any = None
        self._lock = Lock()

    @contextmanager
    def set_to(self, value: Any) -> Iterator[None]:
        run = object()
        with self._lock:
            if not self._wanted:
                self._before = self._read()
            self._write(value)
            self._wanted[run] = value
        try:
            yield
        finally:
            with self._lock:
                del self._wanted[run]
                self._write([self._before, *self._wanted.values()][-1])


def _gpu_switches() -> tuple[tuple[Any, str], ...]:
    backends = sys.modules["torch"].backends
    matmul, cudnn = backends.cuda.matmul, backends.cudnn
    return (matmul, "allow_tf32"), (cudnn, "allow_tf32"), (cudnn, "deterministic")


def _set_on_gpu(values: tuple[bool, ...]) -> None:
    for switch, value in zip(_gpu_switches(), values, strict=True):
        setattr(*switch, value)


_FOLD_THREADS = _Switch(chunks.threads_in_use, chunks.use_threads)
_SHORTEST = _Switch(loops.shortest, loops.use_from)
_ON_GPU = _Switch(lambda: tuple(getattr(*each) for each in _gpu_switches()), _set_on_gpu)


@contextmanager
def fold_threads(threads: int | None) -> Iterator[None]:
    """Let N threads share a large vector and compiled visits; None: the default of the machine."""
    with _FOLD_THREADS.set_to(threads):
        yield


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
    """Let GPUs round the factors of float32 products to TF32, unless ``precision`` is "ieee".

    Convolutions are computed in one order, so that a run repeats.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with _ON_GPU.set_to((*(precision != "ieee",) * 2, True)):
        yield


@contextmanager
def expected_folds(numbers: int) -> Iterator[None]:
    """Use compiled loops on shorter vectors too, if this many numbers pay for loading Numba."""
    if numbers < loops.MANY:
        yield
        return
    with _SHORTEST.set_to(CHUNK):
        yield


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


@cache
def _blas() -> Any:
    """What sets the threads of the BLAS library that NumPy uses; None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")


@cache
def _blas_threads() -> _Switch:
    def write(counts: list[int]) -> None:
        for library, count in zip(_blas().lib_controllers, counts, strict=True):
            library.set_num_threads(count)

    return _Switch(lambda: [library.num_threads for library in _blas().lib_controllers], write)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrix products of NumPy use the caller's thread alone.

    The threads of OpenBLAS spin for some 30 ms after a product, on cores that others need.
    """
    if _blas() is None:
        yield
        return
    with _blas_threads().set_to([1] * len(_blas().lib_controllers)):
        yield
