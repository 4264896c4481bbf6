"""Panels of curves: where each stands, and what it shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from anarchic.study import Line
from anarchic.study.draw import draw_panels
from tests.study.make import cell, result


def line(*ends):
    """A cell whose seeds go from 0 to these accuracies in a round."""
    curves = [{"round": [0, 1], "accuracy": [0.0, end]} for end in ends]
    results = [replace(result(cell(), seed), curve=curve) for seed, curve in enumerate(curves)]
    return Line(cell(), results)


def test_panels_stand_two_a_row_and_show_the_mean_over_the_seeds():
    panels = {f"p = {p}": [("not run", line()), ("run", line(0.4, 0.8))] for p in (1, 2, 5)}
    first, second, third = draw_panels(panels).axes
    assert [axes.get_title(loc="left") for axes in (first, second, third)] == list(panels)
    assert third.get_subplotspec().rowspan.start == 1
    (curve,) = first.lines
    assert curve.get_ydata().tolist() == pytest.approx([0.0, 0.6])
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["run"]
    assert second.get_legend() is None


def test_a_panel_without_results_has_no_legend():
    (axes,) = draw_panels({"nothing yet": [("not run", line())]}).axes
    assert axes.get_legend() is None
