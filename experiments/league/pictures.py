"""Curves of the league: accuracy by virtual time and by updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from anarchic.report.figure import line_style, new_figure, style
from anarchic.study import Findings, Outcome
from anarchic.study.draw import legend_below
from anarchic.study.find import beside

rules = beside(__file__, "rules")
places = beside(__file__, "places")
SHOWN = ("fedavg", "afa-cd", "afa-cs", "fedbuff", "ca2fl", "fadas", "fedasync", "ace")
POINTS = 40
AXES = {"virtual_s": "virtual time (hours)", "updates": "updates"}


def draw(found: Findings, task: str, skew: str) -> Any:
    """A row of panels by virtual time and one by updates; a column per kind of arrivals."""
    by = {
        p[2]: f for p, f in places.by_place(found.where(task=task, skew=skew, whole=True)).items()
    }
    if not any(len(place.run) for place in by.values()):
        return None
    figure = new_figure(3.3 * len(by), 5.6)
    for row, against in enumerate(AXES):
        for column, (arrivals, place) in enumerate(by.items()):
            axes = figure.add_subplot(2, len(by), row * len(by) + column + 1)
            for index, rule in enumerate(SHOWN):
                for outcome in place.where(rule=rule).run:
                    x, y = curve(outcome, against)
                    axes.plot(x, y, label=rules.NAMES[rule], linewidth=1.4, **line_style(index))
            title = arrivals if not row else ""
            style(axes, title=title, x=AXES[against], y="test accuracy" if not column else "")
    legend_below(figure)
    return figure


def curve(outcome: Outcome, against: str) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the finished seeds, where all of them are known."""
    runs = [np.array([r.curve[against], r.curve["accuracy"]], float) for r in outcome.finished]
    if not runs:
        return np.zeros(0), np.zeros(0)
    x = np.linspace(0, min(run[0, -1] for run in runs), POINTS)
    y = np.mean([np.interp(x, *run) for run in runs], axis=0)
    return (x / 3600 if against == "virtual_s" else x), y
