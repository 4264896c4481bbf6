"""Progress of many runs on stderr: a bar where Rich and a terminal are there, lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anarchic.sim.run import Progress

EVERY_S = 60.0  # between lines on the progress of a run


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class Printed:
    """A printed line per result, and one per minute on the progress of a run."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def begin(self, runs: int) -> None:
        say(f"{runs} runs to go.")

    def watch(self, name: str, reached: Progress) -> None:
        if time.monotonic() - self._said_at > EVERY_S:
            self.done(f"{name}: round {reached.round} of {reached.rounds}")

    def done(self, line: str) -> None:
        say(line)
        self._said_at = time.monotonic()


class Bar:
    """All runs as one bar, with the shares of unfinished ones; results are printed above it."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("preparing", total=None)
        self._done = 0
        self._shares: dict[str, float] = {}

    def begin(self, runs: int) -> None:
        self._bar.reset(self._task, total=runs)

    def watch(self, name: str, reached: Progress) -> None:
        self._shares[name] = reached.round / reached.rounds
        self._bar.update(
            self._task,
            completed=self._done + sum(self._shares.values()),
            description=f"{name} round {reached.round}/{reached.rounds}",
        )

    def done(self, line: str) -> None:
        self._shares.clear()
        self._done += 1
        self._bar.print(line, highlight=False, markup=False)
        self._bar.update(self._task, completed=self._done)


@contextmanager
def watching() -> Iterator[Printed | Bar]:
    if not sys.stderr.isatty():
        yield Printed()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichBar
    except ImportError:
        yield Printed()
        return
    doing = TextColumn("{task.description}")
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), doing)
    with RichBar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar)
