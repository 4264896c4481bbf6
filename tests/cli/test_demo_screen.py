"""The live demo's table on a terminal, and its lines elsewhere; where to look for the page."""

from __future__ import annotations

import io
import webbrowser

import pytest
from rich.console import Console

from anarchic.cli import demo
from anarchic.cli.demo_screen import Lines, Screen, curve, demo_screen

pytest.importorskip("httpx")
from anarchic.demo.live import Seen

ANN = {"worker": "worker-1", "updates": 1200, "share": 0.25, "staleness_p50": 3, "seen_s": None}
SEEN = Seen(0.5, 7, 0.875, (ANN,), server=True, killed=("worker-2",))


def shown(screen, width=100):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(screen.picture())
    return console.file.getvalue()


def test_the_table_has_a_row_for_every_worker_and_says_who_was_killed():
    screen = Screen(20.0)
    screen.tell("Killed worker 2.")
    screen.watch(SEEN)
    lines = shown(screen).splitlines()
    assert "version 7" in lines[0]
    assert "accuracy 87.5 %" in lines[0]
    assert "10 s left" in lines[0]
    rows = [line.split() for line in lines if line.startswith("worker-")]
    assert rows[0][:6] == ["worker-1", "at", "work", "1,200", "25.0", "%"]
    assert rows[1][:3] == ["worker-2", "killed", "0"]
    assert lines[-1] == "Killed worker 2."


def test_the_table_says_when_the_server_is_down():
    screen = Screen(20.0)
    screen.watch(SEEN)
    assert "the server is down" not in shown(screen)
    screen.watch(Seen(0.55, 7, 0.875, (ANN,), server=False))
    assert "the server is down" in shown(screen)


def test_only_the_newest_lines_stay_beside_the_table():
    screen = Screen(20.0)
    for number in range(9):
        screen.tell(f"line {number}")
    assert shown(screen).splitlines() == ["starting ...", *(f"line {n}" for n in range(3, 9))]


def test_the_curve_rises_with_the_accuracy():
    assert curve([0.0, 0.5, 1.0]) == "▁▅█"
    screen = Screen(20.0)
    for share, accuracy in ((0.0, 0.0), (0.1, 0.99), (0.11, 0.5)):
        screen.watch(Seen(share, 1, accuracy, server=True))
    assert "▁████ " in shown(screen)  # one bar per fortieth of the time; a late look changes none


def test_without_a_terminal_there_are_lines_and_no_control_characters(capsys):
    with demo_screen(20.0, Console(file=io.StringIO(), force_terminal=False)) as screen:
        assert isinstance(screen, Lines)
        screen.tell("Killed the server.")
        for share in (0.0, 0.05, 0.12, 0.15, 0.21):
            screen.watch(Seen(share, 3, 0.5, server=True))
        screen.watch(Seen(0.4, 3, 0.5, server=False))
    assert capsys.readouterr().out.splitlines() == [
        "Killed the server.",
        "version 3  accuracy 50.0 % after 12% of the time",
        "version 3  accuracy 50.0 % after 21% of the time",
    ]


def test_on_a_terminal_the_table_is_drawn_in_its_place():
    out = io.StringIO()
    with demo_screen(20.0, Console(file=out, force_terminal=True, width=100)) as screen:
        screen.watch(SEEN)
        screen.tell("Killed worker 2.")
    assert "\x1b[" in out.getvalue()
    assert "worker-2" in out.getvalue()
    assert "Killed worker 2." in out.getvalue()


PAGE = "http://127.0.0.1:1/"


def test_it_says_where_to_look_or_which_extra_brings_the_page(monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda name: object())
    assert demo.where_to_look(PAGE, in_browser=False) == [
        f"Watch it at {PAGE} (this machine only, no token needed)."
    ]
    (line,) = demo.where_to_look(None, in_browser=True)
    assert "anarchic[page]" in line
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert "anarchic[page]" in demo.where_to_look(PAGE, in_browser=False)[1]


def test_a_browser_is_opened_only_if_wanted_and_it_says_if_there_is_none(monkeypatch):
    opened = []
    monkeypatch.setattr(demo, "find_spec", lambda name: object())
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    demo.where_to_look(PAGE, in_browser=False)
    assert opened == []
    assert len(demo.where_to_look(PAGE, in_browser=True)) == 1
    assert opened == [PAGE]
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert "open that address yourself" in demo.where_to_look(PAGE, in_browser=True)[-1]
