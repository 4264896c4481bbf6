"""How much the curves of table 1 zig-zag."""

from __future__ import annotations

from anarchic.study.findings import Findings, Line
from tests.experiments.run_files import names_of
from tests.study.make import result

run = names_of("figures-2-4")


def test_the_largest_spread_is_counted_by_row_and_by_column():
    """1/p everywhere, and more under async-dynamic for the CNN alone."""
    lines = []
    for cell in run.STUDY.cells:
        more = (cell.task, cell.columns["setting"]) == ("cnn", "async-dynamic")
        spread = 1 / (cell.columns["p"] or 1) + more
        lines.append(Line(cell, [result(cell, 0, last50_spread=spread)]))
    text = run.zigzag(Findings(lines))
    assert "in 9 of 9 rows, and at p = 1 in 8 of the\n8 columns" in text  # a tie counts
    less = [
        Line(x.cell, [result(x.cell, 0, last50_spread=0.0)])
        if (x.cell.task, x.cell.columns["p"], x.cell.columns["setting"])
        == ("lr", 1, "async-dynamic")
        else x
        for x in lines
    ]
    assert "in 8 of 9 rows, and at p = 1 in 7 of the\n8 columns" in run.zigzag(Findings(less))
    assert run.zigzag(Findings([*lines, Line(lines[0].cell)])) == ""
