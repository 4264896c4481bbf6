"""Panels of curves: where each stands, and what it shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from anarchic.study import Outcome
from anarchic.study.draw import curves_of, draw_panels
from tests.study.make import cell, result


def line(*ends):
    """A cell whose seeds go from 0 to these accuracies in a round."""
    curves = [{"round": [0, 1], "accuracy": [0.0, end]} for end in ends]
    results = [replace(result(cell(), seed), curve=curve) for seed, curve in enumerate(curves)]
    return Outcome(cell(), results)


def test_panels_stand_two_a_row_and_show_the_mean_over_the_seeds():
    panels = {f"p = {p}": [("not run", line()), ("run", line(0.4, 0.8))] for p in (1, 2, 5)}
    figure = draw_panels(panels)
    first, second, third = figure.axes
    assert [axes.get_title(loc="left") for axes in (first, second, third)] == list(panels)
    assert third.get_subplotspec().rowspan.start == 1
    (curve,) = first.lines
    assert curve.get_ydata().tolist() == pytest.approx([0.0, 0.6])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["run"]
    assert not any(axes.get_legend() for axes in figure.axes)  # where it would lie on curves


def test_a_panel_without_results_has_no_legend():
    assert not draw_panels({"nothing yet": [("not run", line())]}).legends


def test_the_last_rounds_are_one_point_where_the_others_are_far_apart():
    def curve(rounds):
        made = {"round": rounds, "accuracy": [r / 1000 for r in rounds]}
        rounds, (values,) = curves_of(Outcome(cell(), [replace(result(cell(), 0), curve=made)]))
        return rounds.tolist(), values.tolist()

    rounds, values = curve([0, 200, 400, *range(591, 601)])
    assert rounds == [0, 200, 400, 595.5]  # the mean of 591 .. 600
    assert values == pytest.approx([0.0, 0.2, 0.4, 0.5955])
    for other in (
        [0, 5, 10, *range(16, 26)],  # as many rounds as two steps
        list(range(0, 2600, 200)),  # one that diverged
        [0, *range(91, 101)],  # nothing to compare with
    ):
        assert curve(other)[0] == other


def test_a_run_that_diverged_is_no_part_of_the_mean_and_ends_in_a_cross():
    ran, lost = line(0.8, 0.4).results
    lost = replace(lost, stopped_at="diverged")
    axes = draw_panels({"p": [("both", Outcome(cell(), [ran, lost]))]}).axes[0]
    mean, own, cross = axes.lines
    assert mean.get_ydata().tolist() == [0.0, 0.8]
    assert own.get_ydata().tolist() == [0.0, 0.4]
    assert (cross.get_marker(), cross.get_ydata().tolist()) == ("x", [0.4])


def test_a_cell_of_which_every_run_diverged_has_its_curve():
    lost = [replace(r, stopped_at="diverged") for r in line(0.4).results]
    mean, *_ = draw_panels({"p": [("lost", Outcome(cell(), lost))]}).axes[0].lines
    assert (mean.get_label(), mean.get_ydata().tolist()) == ("lost", [0.0, 0.4])
