from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from anarchic.study.watch import Bar


def test_finished_runs_stay_printed_above_the_bar():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    with Progress(console=console, transient=True, auto_refresh=False) as rich:
        bar = Bar(rich)
        bar.begin(2)
        bar.done("lr p1.seed0: 0.8860 (paper 0.8916)")
    assert "lr p1.seed0: 0.8860 (paper 0.8916)\n" in shown.getvalue()
