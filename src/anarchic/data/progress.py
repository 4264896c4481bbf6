"""A progress bar on the terminal if Rich is installed, otherwise one plain line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show progress; call the function with the number of bytes of ``name`` received so far."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
    except ImportError:
        sys.stderr.write(f"Fetching {name} ...\n")
        yield lambda done: None
        return
    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, completed=done)
