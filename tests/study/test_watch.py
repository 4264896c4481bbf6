from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from anarchic.sim.run import Progress as RunProgress
from anarchic.study.watch import Bar, Printed, RunRate


def test_finished_runs_stay_printed_above_the_bar():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    with Progress(console=console, transient=True, auto_refresh=False) as rich:
        bar = Bar(rich)
        bar.begin(2)
        bar.done("lr p1.seed0: 0.8860 (paper 0.8916)", "p1.seed0")
    assert "lr p1.seed0: 0.8860 (paper 0.8916)\n" in shown.getvalue()


def test_the_pace_counts_parts_of_runs(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("anarchic.study.watch.time.monotonic", lambda: now[0])
    pace = RunRate(10)
    assert str(pace) == "0/10"
    pace.reached("a", RunProgress(5, 10, 0, {}))
    pace.reached("b", RunProgress(10, 10, 0, {}))
    pace.finished("b")
    assert (pace.done, pace.completed) == (1, 1.5)
    now[0] = 130.0  # a run and a half in half a minute: 8.5 are left, at 3 per minute
    assert str(pace) == "1/10, 3 per minute, 2.8 min left"


def test_lines_say_the_pace_where_there_is_no_terminal(capsys):
    printed = Printed()
    printed.begin(2)
    printed.done("one: 0.9", "one")
    assert capsys.readouterr().err == "2 runs to go.\none: 0.9  (1/2)\n"
