"""Defects to be brought back, or planted, to see that the simulator finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from anarchic.server import sqlite

Reverting = Callable[[ExitStack], None]
REVERTED: dict[str, Reverting] = {}


@contextmanager
def reverting(name: str | None) -> Iterator[None]:
    """While it lasts, the defect is there."""
    with ExitStack() as stack:
        if name is not None:
            REVERTED[name](stack)
        yield


def _defect(make: Reverting) -> Reverting:
    REVERTED[make.__name__.replace("_", "-")] = make
    return make


@_defect
def no_sync(stack: ExitStack) -> None:
    """Answers before anything is on disk."""
    pragmas = tuple(p.replace("synchronous = FULL", "synchronous = OFF") for p in sqlite.PRAGMAS)
    assert pragmas != sqlite.PRAGMAS
    stack.enter_context(patch.object(sqlite, "PRAGMAS", pragmas))
