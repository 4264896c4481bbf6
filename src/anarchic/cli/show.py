"""Print numbers and tables on the terminal, and progress bars on stderr if that is a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from anarchic.sim.run import Progress as Reached
from anarchic.sim.run import Watcher

MISSING = "–"  # noqa: RUF001  # a dash


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def number(value: float | None, unit: str = "") -> str:
    """With thousands separators, and decimals for small numbers only."""
    if value is None:
        return MISSING
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{' ' if unit else ''}{unit}"


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, names: int = 1) -> None:
    """Print a table; the first ``names`` columns are aligned left, the others right."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index < names else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def print_facts(facts: Iterable[tuple[str, str]], title: str = "") -> None:
    """Print a table of two columns, name and value."""
    table = Table(title=title or None, title_justify="left", title_style="bold", show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for fact in facts:
        table.add_row(*fact)
    _console().print(table)


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    # Files and pipes have no width: do not break their lines at 80 characters.
    return console if console.is_terminal else Console(width=160, highlight=False, markup=False)


@contextmanager
def watching(what: str = "") -> Iterator[Watcher]:
    """A watcher for ``simulate`` that shows a progress bar."""
    with _bar(TextColumn("{task.fields[found]}")) as bar:
        yield (lambda reached: None) if bar is None else _Watch(bar, what)


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; call the function with the number of ``total`` that are done."""
    with _bar(MofNCompleteColumn()) as bar:
        if bar is None:
            yield lambda done: None
        else:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)


@contextmanager
def _bar(found: ProgressColumn) -> Iterator[Progress | None]:
    """A progress bar with what was found so far; None if there is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    doing = TextColumn("[progress.description]{task.description}")
    columns = (doing, BarColumn(), found, TextColumn("left"), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True) as bar:
        yield bar


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
