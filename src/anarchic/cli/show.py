"""Print numbers and tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

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
