from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from anarchic.study.watch import Bar


def test_what_is_done_stays_when_the_bar_is_gone():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    with Progress(console=console, transient=True, auto_refresh=False) as rich:
        bar = Bar(rich)
        bar.begin(2)
        bar.done("lr p1.seed0: 0.8860 (paper 0.8916)")
    assert "lr p1.seed0: 0.8860 (paper 0.8916)\n" in shown.getvalue()
