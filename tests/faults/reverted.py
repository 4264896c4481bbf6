"""Defects to bring back, or to plant, to see that the simulator finds them.

python -m tests.faults --revert lock-by-path --only second_server --seeds 20
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from anarchic.errors import StoreError
from anarchic.server import filelock, fold, pending, published, service, sqlite
from anarchic.server.records import NewUpdate, Receipt
from tests.faults import server

REVERTED: dict[str, Callable[[ExitStack], None]] = {}


@contextmanager
def reverting(name: str | None) -> Iterator[None]:
    """While it lasts, the defect is there."""
    with ExitStack() as stack:
        if name is not None:
            REVERTED[name](stack)
        yield


def _defect(make: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
    REVERTED[make.__name__.replace("_", "-")] = make
    return make


@_defect
def lock_by_path(stack: ExitStack) -> None:
    """The lock is a file beside the store, and a second name of the store is not noticed."""
    stack.enter_context(patch.object(filelock.FileLock, "_lock_inode", lambda self: True))
    stack.enter_context(patch.object(sqlite, "check_names", lambda path: None))


@_defect
def etag_by_version(stack: ExitStack) -> None:
    """An ETag names run and version only."""
    named = property(lambda model: f'"{model.run}-{model.version}"')
    stack.enter_context(patch.object(published.PublishedModel, "etag", named))


@_defect
def log_in_the_caller(stack: ExitStack) -> None:
    """Whoever logs writes the line, waits for it, and gets its error."""

    def make_log(file: server.LogFile) -> Callable[..., None]:
        def log(event: str, **facts: Any) -> None:
            file.write(f"{event}\n")

        return log

    stack.enter_context(patch.object(server, "make_log", make_log))
    stack.enter_context(patch.object(service, "never_raising", lambda log: log))


@_defect
def health_without_the_store(stack: ExitStack) -> None:
    """Health knows whether the aggregator lives, and nothing of updates that are refused."""

    def problem(self: service.Service) -> str | None:
        return None if self.aggregator.alive else "Updates are no longer aggregated."

    stack.enter_context(patch.object(service.Service, "problem", problem))


@_defect
def any_version_published(stack: ExitStack) -> None:
    """Nobody looks whether a version is finite."""
    stack.enter_context(patch.object(fold, "not_finite", lambda rule, state: []))


@_defect
def no_sync(stack: ExitStack) -> None:
    """Updates are acknowledged before they are on disk."""
    pragmas = tuple(each.replace("= FULL", "= OFF") for each in sqlite.PRAGMAS)
    assert pragmas != sqlite.PRAGMAS
    stack.enter_context(patch.object(sqlite, "PRAGMAS", pragmas))


@_defect
def failed_writes_acknowledged(stack: ExitStack) -> None:
    """A transaction that failed is told as a success."""
    accept = pending.Pending.accept

    def optimist(self: pending.Pending, updates: Sequence[tuple[NewUpdate, Any]]) -> list[Receipt]:
        try:
            return accept(self, updates)
        except StoreError:
            return [Receipt("duplicate", 0) for _ in updates]

    stack.enter_context(patch.object(pending.Pending, "accept", optimist))


@_defect
def folded_twice(stack: ExitStack) -> None:
    """Every ninth update moves the model twice."""
    fold_one = fold.Folding.fold
    count = 0

    def twice(self: fold.Folding, seq: int, decoded: Any) -> bool:
        nonlocal count
        count += 1
        if count % 9 == 0:
            self._state = self._rule.receive(self._state, decoded.update)
        return fold_one(self, seq, decoded)

    stack.enter_context(patch.object(fold.Folding, "fold", twice))
