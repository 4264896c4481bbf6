"""A picture of how good models are for each worker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anarchic.errors import ConfigError
from anarchic.report.curves import Curve, draw, label, legend
from anarchic.report.figure import check_format, line_style, new_figure, save, style
from anarchic.report.runs import RecordedRun

NAMED = 20  # workers


def plot_workers(runs: Sequence[RecordedRun], path: str | os.PathLike[str]) -> Path:
    """The worst tenth of the workers by round, and beside it all workers at the end, sorted.

    Workers with names (roles of the data) are named: the worst of each run, or all of a few.
    """
    check_format(path)
    known = [run for run in runs if run.per_worker is not None]
    if not known:
        raise ConfigError(
            f"None of these runs was evaluated for each worker ({', '.join(r.name for r in runs)}):"
            " simulate with --per-worker."
        )
    figure = new_figure(11.4, 4.2)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    measures = {run.per_worker.measure for run in known if run.per_worker is not None}
    said = f"{' or '.join(sorted(measures))} on the workers' own samples"
    draw(left, [Curve(label(run), run.metrics) for run in known], metric="workers_worst_tenth")
    style(left, title="Mean of the worst tenth of the workers", x="round", y=said)
    for index, run in enumerate(known):
        assert run.per_worker is not None
        names, values = run.per_worker.names, run.per_worker.values[-1]
        order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
        values, low = values[order], run.per_worker.measure == "accuracy"
        shares = 100 * (np.arange(len(values)) + 0.5) / len(values)
        right.plot(shares, values, linewidth=1.8, **line_style(index))
        told = range(len(order)) if len(known) == 1 and len(order) <= NAMED else [0 if low else -1]
        for place in told if names else ():
            right.annotate(
                names[order[place]], (shares[place], values[place]), (4, -2),
                textcoords="offset points", va="top", fontsize=8,
            )  # fmt: skip
    style(right, title="All workers at the end, sorted", x="workers (%)", y="")
    legend(left, len(known))
    return save(figure, path)
