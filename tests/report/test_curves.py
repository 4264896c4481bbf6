import pytest

from anarchic.errors import ConfigError
from anarchic.report.curves import Curve, draw, plot_race, plot_runs
from anarchic.report.figure import new_figure
from anarchic.report.runs import read_run
from tests.report.make import make_run

pytest.importorskip("matplotlib")
ROWS = [
    {"round": 0, "virtual_s": 0.0, "accuracy": 0.1},
    {"round": 1, "virtual_s": None, "accuracy": 0.5},
    {"round": 2, "virtual_s": 4.0, "accuracy": None},
    {"round": 3, "virtual_s": 9.0, "accuracy": 0.9},
]


def test_points_without_a_time_or_an_accuracy_are_left_out():
    axes = new_figure(2, 2).add_subplot()
    draw(axes, [Curve("a", ROWS), Curve("b", [])], against="virtual_s")
    first, second = axes.lines
    assert first.get_xydata().tolist() == [[0.0, 0.1], [9.0, 0.9]]
    assert len(second.get_xydata()) == 0
    assert first.get_color() != second.get_color()


@pytest.mark.parametrize("ending", ["png", "svg", pytest.param("pdf", marks=pytest.mark.slow)])
def test_runs_are_drawn_in_every_format(tmp_path, ending):
    runs = [read_run(make_run(tmp_path / "one")), read_run(make_run(tmp_path / "two", clock=True))]
    assert plot_runs(runs, tmp_path / f"plot.{ending}").stat().st_size > 1000


def test_many_runs_and_runs_without_a_point_are_drawn(tmp_path):
    runs = [
        read_run(make_run(tmp_path / str(n), accuracies=(0.1, 0.2)[: n % 3], finished=False))
        for n in range(9)
    ]
    assert plot_runs(runs, tmp_path / "plot.png").exists()


def test_a_race_is_drawn_with_and_without_a_winner(tmp_path):
    for target in (0.5, 0.99):
        path = plot_race([Curve("a", ROWS)], tmp_path / "race.png", target=target, title="Race")
        assert path.exists()


def test_an_unknown_format_is_refused_before_anything_is_drawn(tmp_path):
    with pytest.raises(ConfigError, match=r"\.png"):
        plot_runs([], tmp_path / "plot.gif")
