"""Loops compiled to machine code where Numba is installed (the extra ``fast``).

NumPy makes one pass through the memory per operation; a compiled loop makes one pass for all of
them. Each such loop has a twin in NumPy that is used where Numba is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

CAN_COMPILE = find_spec("numba") is not None


def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """``loop``, compiled when it is first called: importing Numba takes longer than a short run.

    It releases the interpreter's lock, adds and multiplies in the order written and rounds each
    time, as NumPy does. The machine code is kept beside the source for the next process.
    """

    def call(*arguments: Any) -> Any:
        return _machine_code(loop)(*arguments)

    return call


@cache
def _machine_code(loop: Callable[..., Any]) -> Callable[..., Any]:
    from numba import njit

    translate: Callable[..., Any] = partial(njit, nogil=True, error_model="numpy")
    try:
        fast: Callable[..., Any] = translate(cache=True)(loop)
    except RuntimeError:  # there is no place where the machine code could be kept
        fast = translate()(loop)
    return fast
