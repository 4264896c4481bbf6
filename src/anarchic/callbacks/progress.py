"""A progress bar: in a terminal by Rich, in a notebook as HTML, and elsewhere as lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, final

from anarchic.callbacks.callback import Callback, RunInfo, VersionInfo

BAR_S, LINE_S = 0.2, 10.0  # between two pictures of a bar, and between two lines

Show = Callable[[int, int, str], None]  # rounds done, rounds in all, and what was found


@final
class ProgressBar(Callback):
    """The rounds of a simulated run, with its last evaluation; what ``progress=True`` shows."""

    def __init__(self) -> None:
        self._show: Show = _ignore
        self._close: Callable[[], None] = lambda: None
        self._every_s, self._shown_at = 0.0, 0.0
        self._rounds, self._found, self._round = 0, "", 0

    def begin(self, run: RunInfo) -> None:
        self._rounds, self._found, self._round = run.rounds or 0, "", 0
        self._show, self._close, self._every_s = _shower(run.name)
        self._shown_at = time.monotonic()
        self._show(0, self._rounds, "")

    def version(self, at: VersionInfo) -> None:
        self._round = at.version
        if time.monotonic() - self._shown_at >= self._every_s:
            self._shown_at = time.monotonic()
            self._show(self._round, self._rounds, self._found)

    def evaluation(self, at: VersionInfo) -> None:
        names = [n for n in ("accuracy", "loss") if at.metrics.get(n) is not None]
        self._found = "  ".join(f"{name} {at.metrics[name]:.3f}" for name in names)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._show(self._round, self._rounds, self._found)
        self._close()


def _shower(name: str) -> tuple[Show, Callable[[], None], float]:
    """How to show the progress here, how to end it, and how often."""
    if in_notebook():
        return _in_notebook(), lambda: None, BAR_S
    if sys.stderr.isatty():
        try:
            return *_in_terminal(), BAR_S
        except ImportError:  # on a host that has PyTorch and little else
            pass
    return _as_lines(name), lambda: None, LINE_S


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _in_notebook() -> Show:
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)

    def show(done: int, rounds: int, found: str) -> None:
        bar = f'<progress value="{done}" max="{rounds}" style="width: 20em"></progress>'
        handle.update(HTML(f"<div>{bar} round {done}/{rounds} {escape(found)}</div>"))

    return show


def _in_terminal() -> tuple[Show, Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    task = bar.add_task("", total=1)

    def show(done: int, rounds: int, found: str) -> None:
        bar.update(task, completed=done, total=rounds, description=found)

    return show, bar.stop


def _as_lines(name: str) -> Show:
    def show(done: int, rounds: int, found: str) -> None:
        sys.stderr.write(f"{name}: round {done}/{rounds}  {found}".rstrip() + "\n")
        sys.stderr.flush()

    return show


def _ignore(done: int, rounds: int, found: str) -> None:
    """Before the run begins."""
