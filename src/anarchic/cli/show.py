"""Print numbers and tables on the terminal, and progress bars on stderr if that is a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from anarchic.core.quiet import QUIET
from anarchic.core.reading import printable
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
        table.add_row(*map(_plain, row))
    _console().print(table)


def print_facts(facts: Iterable[tuple[str, str]], title: str = "") -> None:
    """Print a table of two columns, name and value."""
    table = Table(title=title or None, title_justify="left", title_style="bold", show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for fact in facts:
        table.add_row(*map(_plain, fact))
    _console().print(table)


def _plain(text: str) -> str:
    """A cell without control characters: names and texts may come from files that others wrote."""
    return printable(text, keep="\n")


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    # Files and pipes have no width: do not break their lines at 80 characters.
    return console if console.is_terminal else Console(width=160, highlight=False, markup=False)


@contextmanager
def watching(what: str = "") -> Iterator[Watcher]:
    """A watcher for ``simulate`` that shows a progress bar.

    Speed counts from the first round seen, since a resumed run starts later.
    """
    with progress_bar() as bar:
        task = bar.add_task(f"{what} preparing".strip(), total=None, found="")
        first: tuple[float, int] | None = None

        def watch(reached: Reached) -> None:
            nonlocal first
            now, accuracy = time.monotonic(), reached.latest.get("accuracy")
            if first is None:
                first = now, reached.updates
                bar.reset(task, total=reached.rounds, completed=reached.round)
            found = "" if accuracy is None else f"accuracy {accuracy:.3f}"
            if now > first[0]:
                found += f"  {(reached.updates - first[1]) / (now - first[0]):,.0f} updates/s"
            doing = f"{what} round {reached.round}/{reached.rounds}".strip()
            bar.update(task, completed=reached.round, description=doing, found=found)

        yield watch


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; call the function with the number of ``total`` that are done."""
    with progress_bar("{task.completed:.0f}/{task.total:.0f}") as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def progress_bar(found: str = "{task.fields[found]}") -> Progress:
    """A bar with what was found so far, and the time left; nothing if there is no terminal."""
    console = Console(stderr=True)
    doing, left = TextColumn("{task.description}"), TimeRemainingColumn(compact=True)
    columns = (doing, BarColumn(), TextColumn(found), TextColumn("left"), left)
    return Progress(
        *columns, console=console, transient=True, disable=QUIET.get() or not console.is_terminal
    )
