"""How much the curves of table 1 zig-zag."""

from __future__ import annotations

from anarchic.study.findings import Findings, Outcome
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("figures-2-4")


def test_the_spread_of_every_curve_stands_in_the_table():
    """1/p everywhere, and 1 more under async-dynamic for the CNN."""
    outcomes = []
    for cell in run.STUDY.cells:
        more = (cell.task, cell.columns["setting"]) == ("cnn", "async-dynamic")
        spread = 1 / (cell.columns["p"] or 1) + more
        outcomes.append(Outcome(cell, [result(cell, 0, last50_spread=spread)]))
    rows = rows_of(run.zigzag(Findings(outcomes)))
    assert len(rows) == 9
    assert rows[1] == ["LR/MNIST", "2", "0.5000", "0.5000", "0.5000", "0.5000"]
    assert rows[6] == ["CNN/CIFAR-10", "5", "0.2000", "0.2000", "0.2000", "1.2000"]
    assert run.zigzag(Findings([*outcomes, Outcome(outcomes[0].cell)])) == ""
