"""What the live demo shows while it runs: a table in its place on a terminal, otherwise lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anarchic.cli.show import MISSING, number, percent

if TYPE_CHECKING:
    from anarchic.demo.live import Seen

STEPS = 10  # lines about the training, where there is no table
TOLD = 6  # lines beside the table
BARS = "▁▂▃▄▅▆▇█"
CURVE = 40  # characters of the accuracy's curve
HEADER = ("worker", "state", "updates", "share", "staleness", "seen")


@contextmanager
def demo_screen(seconds: float, console: Console | None = None) -> Iterator[Lines | Screen]:
    """Where the demo tells what it does, on a terminal or not."""
    console = console or Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield Lines(typer.echo)
        return
    screen = Screen(seconds)
    with Live(console=console, refresh_per_second=4, get_renderable=screen.picture):
        yield screen


@final
class Lines:
    """One line per thing that happens, and a few about the training."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo, self._step = echo, 0

    def tell(self, line: str) -> None:
        self._echo(line)

    def watch(self, seen: Seen) -> None:
        step = int(seen.share * STEPS)
        if step > self._step and seen.server:
            self._step = step
            self._echo(f"{facts(seen)} after {seen.share:.0%} of the time")


@final
class Screen:
    """A table of workers under the run's state, drawn again and again in the same place."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: Seen | None = None
        self._told: deque[str] = deque(maxlen=TOLD)
        self._curve: list[float] = []

    def tell(self, line: str) -> None:
        self._told.append(line)

    def watch(self, seen: Seen) -> None:
        self._seen = seen
        place = int(seen.share * CURVE)
        self._curve += [seen.accuracy] * (place + 1 - len(self._curve))

    def picture(self) -> Group:
        """All of it, as rich draws it."""
        seen = self._seen
        if seen is None:
            return Group(Text("starting ..."), *map(Text, self._told))
        left = Text(f"{facts(seen)}  {curve(self._curve)}")
        if not seen.server:
            left.append("  the server is down", style="bold red")
        left.append(f"  {self._seconds * (1 - seen.share):.0f} s left", style="dim")
        return Group(left, Text(), table_of(seen, time.time()), *map(Text, self._told))


def facts(seen: Seen) -> str:
    """The run in a few words."""
    return f"version {seen.version}  accuracy {percent(seen.accuracy)}"


def curve(values: list[float]) -> str:
    """Accuracies as a row of bars.

    >>> curve([0.0, 0.5, 1.0])
    '▁▅█'
    """
    return "".join(BARS[min(len(BARS) - 1, int(value * len(BARS)))] for value in values)


def table_of(seen: Seen, now_s: float) -> Table:
    """One row per worker."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in HEADER:
        table.add_column(name, justify="left" if name in HEADER[:2] else "right", no_wrap=True)
    listed = {worker["worker"]: worker for worker in seen.workers}
    for name in sorted({*listed, *seen.killed}):
        table.add_row(*_row(name, listed.get(name), seen, now_s))
    return table


def _row(name: str, worker: Any, seen: Seen, now_s: float) -> tuple[str | Text, ...]:
    state = Text("killed", style="bold red") if name in seen.killed else Text("at work")
    if worker is None:
        return name, state, "0", MISSING, MISSING, MISSING
    late, at_s = worker["staleness_p50"], worker["seen_s"]
    ago = MISSING if at_s is None else f"{max(0.0, now_s - at_s):.0f} s ago"
    return name, state, f"{worker['updates']:,}", percent(worker["share"]), number(late), ago
