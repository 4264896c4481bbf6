"""Progress of many runs on stderr: a bar where Rich and a terminal are there, lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anarchic.core.quiet import QUIET
from anarchic.sim.run import Progress

EVERY_S = 60.0  # between lines on the progress of a run


def say(line: str) -> None:
    if QUIET.get():
        return
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class RunRate:
    """How fast runs are done, by the share of those that are under way as well."""

    def __init__(self, runs: int) -> None:
        self._runs, self._begun_at = runs, time.monotonic()
        self.done = 0
        self._shares: dict[str, float] = {}

    def reached(self, name: str, at: Progress) -> None:
        self._shares[name] = at.round / at.rounds

    def finished(self, name: str) -> None:
        self._shares.pop(name, None)
        self.done += 1

    @property
    def completed(self) -> float:
        """Runs, with parts of them."""
        return self.done + sum(self._shares.values())

    def __str__(self) -> str:
        """Runs done, runs per minute, and the time left."""
        seconds, done = time.monotonic() - self._begun_at, self.completed
        said = f"{self.done}/{self._runs}"
        if not done or seconds < 1:
            return said
        left = max(0.0, self._runs - done) * seconds / done
        rate = 60 * done / seconds
        return (
            f"{said}, {rate:{',.0f' if rate >= 100 else '.3g'}} per minute, {duration(left)} left"
        )


def duration(seconds: float) -> str:
    """In the largest unit that fits.

    >>> duration(12), duration(150), duration(7000)
    ('12 s', '2.5 min', '1.9 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Printed:
    """A printed line per result, and one per minute on the progress of a run."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()
        self._pace = RunRate(0)

    def begin(self, runs: int) -> None:
        say(f"{runs} runs to go.")
        self._pace = RunRate(runs)

    def watch(self, name: str, reached: Progress) -> None:
        self._pace.reached(name, reached)
        if time.monotonic() - self._said_at > EVERY_S:
            self._say(f"{name}: round {reached.round} of {reached.rounds}")

    def done(self, line: str, name: str) -> None:
        self._pace.finished(name)
        self._say(line)

    def _say(self, line: str) -> None:
        say(f"{line}  ({self._pace})")
        self._said_at = time.monotonic()


class Bar:
    """All runs as one bar, with the shares of unfinished ones; results are printed above it."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("preparing", total=None)
        self._pace = RunRate(0)

    def begin(self, runs: int) -> None:
        self._bar.reset(self._task, total=runs)
        self._pace = RunRate(runs)

    def watch(self, name: str, reached: Progress) -> None:
        self._pace.reached(name, reached)
        self._show(f"{name} round {reached.round}/{reached.rounds}")

    def done(self, line: str, name: str) -> None:
        self._pace.finished(name)
        self._bar.print(line, highlight=False, markup=False)
        self._show(name)

    def _show(self, doing: str) -> None:
        said = f"{self._pace}  {doing}"
        self._bar.update(self._task, completed=self._pace.completed, description=said)


@contextmanager
def watching() -> Iterator[Printed | Bar]:
    if QUIET.get() or not sys.stderr.isatty():
        yield Printed()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichBar
    except ImportError:
        yield Printed()
        return
    doing = TextColumn("{task.description}")
    columns = BarColumn(), TimeElapsedColumn(), doing
    with RichBar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar)
