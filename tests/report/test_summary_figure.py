"""Reports as pictures: what their axes say, of runs and of stores."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import pairwise

import pytest

from anarchic import Settings, simulate
from anarchic.server.store import open_store
from tests.browser.many import fill
from tests.report.make import make_run
from tests.server.make import begun

pytest.importorskip("matplotlib")

from anarchic.report.summary_figure import drawn


def panels(figure):
    """The axes by the first word of their titles."""
    return {axes.get_title(loc="left").partition(" ")[0]: axes for axes in figure.axes}


@pytest.fixture
def store(tmp_path):
    """A store that had a server until two minutes ago: 300 updates in 0.3 s."""
    with closing(open_store(tmp_path / "run.db")) as made:
        begun(made, m=3)
        fill(made, workers=4, updates=300, m=3, now_s=time.time() - 120)
    return tmp_path / "run.db"


def test_the_strip_of_a_store_is_filled_and_begins_with_the_first_update(store):
    axes = panels(drawn([store]))["Who"]
    assert axes.get_xlabel() == "time since the first update (s)"
    assert axes.get_xlim() == pytest.approx((0, 0.299), abs=2e-3)
    marks = [
        x for found in axes.collections for x, _ in found.get_offsets() if len(found.get_offsets())
    ]
    assert min(marks) < 0.03
    assert max(marks) > 0.27


def test_without_evaluations_there_are_updates_per_second_in_place_of_an_empty_chart(store):
    figure = drawn([store])
    assert "Accuracy" not in panels(figure)
    pace = panels(figure)["Updates"]
    assert "no version was evaluated" in pace.get_title(loc="left")
    [stairs] = pace.patches
    assert sum(stairs.get_data().values) > 0
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert "version 100, 300 updates" in figure.get_suptitle()


def test_evaluations_of_a_store_are_curves(store):
    with closing(open_store(store)) as made:
        for version, accuracy in ((10, 0.2), (50, 0.6), (100, 0.8)):
            made.add_evaluation(version, {"accuracy": accuracy})
    figure = drawn([store])
    [line] = panels(figure)["Accuracy"].lines
    assert line.get_xydata().tolist() == [[10, 0.2], [50, 0.6], [100, 0.8]]


def test_a_run_without_a_metric_has_no_entry_in_its_legend(tmp_path):
    places = [make_run(tmp_path / "one"), make_run(tmp_path / "two", judged=False)]
    axes = panels(drawn(places))["Accuracy"]
    assert axes.get_legend_handles_labels()[1] == ["one (afa-cd)"]
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 0]


def test_the_labels_of_norms_do_not_cover_each_other(store):
    figure = drawn([store])
    figure.draw_without_rendering()
    axes = panels(figure)["Norms:"]
    boxes = [label.get_window_extent() for label in axes.get_xticklabels(which="both")]
    assert len(boxes) >= 3
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_a_simulation_with_a_clock_has_virtual_time(tmp_path):
    clock = Settings(rounds=40, workers=6, m=3, participation="exponential")
    simulate(clock, out=tmp_path / "run")
    axes = panels(drawn([tmp_path / "run"]))["Who"]
    assert axes.get_xlabel().startswith("virtual time (")
    assert axes.get_xlim()[0] == 0
