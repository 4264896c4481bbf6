import io

import pytest
from rich.console import Console

from anarchic.cli import progress
from anarchic.sim.run import Progress


@pytest.fixture
def screen(monkeypatch):
    """What a terminal shows."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **_: terminal)
    return screen


def test_a_terminal_sees_round_accuracy_and_speed(screen):
    with progress.watching("FedAvg") as watch:
        watch(Progress(3, 8, 15, {"accuracy": 0.5}))
        watch(Progress(4, 8, 20, {"accuracy": 0.625}))
    shown = screen.getvalue()
    assert "FedAvg round 4/8" in shown
    assert "accuracy 0.625" in shown
    assert "updates/s" in shown


def test_a_terminal_sees_how_many_are_done(screen):
    with progress.counting("updates folded", 8) as done:
        done(3)
    assert "updates folded" in screen.getvalue()
    assert "3/8" in screen.getvalue()


def test_a_pipe_sees_nothing(capsys):
    with progress.watching() as watch:
        watch(Progress(1, 8, 5, {}))
    with progress.counting("updates folded", 8) as done:
        done(3)
    assert capsys.readouterr() == ("", "")
