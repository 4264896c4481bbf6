"""Progress bars on stderr, if that is a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from anarchic.sim.run import Progress as Reached
from anarchic.sim.run import Watcher

_COLUMNS = "[progress.description]{task.description}", "{task.fields[found]}"


@contextmanager
def watching(what: str = "") -> Iterator[Watcher]:
    """A watcher for ``simulate`` that shows a progress bar."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda reached: None
        return
    doing, found = (TextColumn(column) for column in _COLUMNS)
    columns = (doing, BarColumn(), found, TextColumn("left"), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Watch(bar, what)


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; call the function with the number of ``total`` that are done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: None
        return
    left = TextColumn("left"), TimeRemainingColumn(compact=True)
    columns = (TextColumn(_COLUMNS[0]), BarColumn(), MofNCompleteColumn(), *left)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


class _Watch:
    """Moves the bar; speed counts from the first round seen, since a resumed run starts later."""

    def __init__(self, bar: Progress, what: str) -> None:
        self._bar = bar
        self._what = what
        self._task = bar.add_task(f"{what} preparing".strip(), total=None, found="")
        self._first: tuple[float, int] | None = None

    def __call__(self, reached: Reached) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now, reached.updates
            self._bar.reset(self._task, total=reached.rounds, completed=reached.round)
        self._bar.update(
            self._task,
            completed=reached.round,
            description=f"{self._what} round {reached.round}/{reached.rounds}".strip(),
            found=f"{_accuracy(reached)}  {self._speed(now, reached.updates)}",
        )

    def _speed(self, now: float, updates: int) -> str:
        assert self._first is not None
        since, before = self._first
        return f"{(updates - before) / (now - since):,.0f} updates/s" if now > since else ""


def _accuracy(reached: Reached) -> str:
    accuracy = reached.latest.get("accuracy")
    return "" if accuracy is None else f"accuracy {accuracy:.3f}"
