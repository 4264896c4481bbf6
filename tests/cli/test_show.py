import io

import pytest
from rich.console import Console

from anarchic.cli import show
from anarchic.cli.show import counting, number, percent, print_table, watching
from anarchic.sim.run import Progress


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),  # noqa: RUF001
        (3, "3"),
        (2.345, "2.35"),
        (23.45, "23.4"),
        (12345.6, "12,346"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_units_and_percents():
    assert (number(2.0, "s"), percent(0.1234)) == ("2 s", "12.3 %")


def test_a_table_in_a_pipe_is_not_broken_at_80_columns(capsys):
    print_table(["a", "b"], [("x" * 60, "y" * 60)])
    assert f"{'x' * 60}  {'y' * 60}" in capsys.readouterr().out


@pytest.fixture
def screen(monkeypatch):
    """What a terminal shows."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(show, "Console", lambda **_: terminal)
    return screen


def test_a_terminal_sees_round_accuracy_and_speed(screen):
    with watching("FedAvg") as watch:
        watch(Progress(3, 8, 15, {"accuracy": 0.5}))
        watch(Progress(4, 8, 20, {"accuracy": 0.625}))
    shown = screen.getvalue()
    assert "FedAvg round 4/8" in shown
    assert "accuracy 0.625" in shown
    assert "updates/s" in shown


def test_a_terminal_sees_how_many_are_done(screen):
    with counting("updates folded", 8) as done:
        done(3)
    assert "updates folded" in screen.getvalue()
    assert "3/8" in screen.getvalue()


def test_a_pipe_sees_nothing(capsys):
    with watching() as watch:
        watch(Progress(1, 8, 5, {}))
    with counting("updates folded", 8) as done:
        done(3)
    assert capsys.readouterr() == ("", "")
