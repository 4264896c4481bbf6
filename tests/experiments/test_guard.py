"""What the guard changes, cell by cell."""

from __future__ import annotations

import pytest

from anarchic.study.findings import Findings, Outcome
from tests.experiments.run_files import names_of, rows_of
from tests.study.make import result

run = names_of("guard")


def outcome(cell):
    """Ours is p / 100, and at p = 2 the guard takes 0.01 of it."""
    on = cell.columns["guard"] == "on"
    ours = cell.columns["p"] / 100 - (0.01 if on and cell.columns["p"] == 2 else 0)
    seen = {"clipped": 7, "farthest": 3.0} if on else {}
    return Outcome(cell, [result(cell, 0, last10=ours, updates=750, **seen)])


def test_every_cell_is_there_with_the_guard_and_without_and_nothing_else_differs():
    for off, on in run.pairs(Findings([Outcome(c) for c in run.STUDY.cells if c.task == "lr"])):
        assert (off.cell.settings.guard, on.cell.settings.guard) == (None, run.FACTOR)
        same = {**off.cell.asked, "guard": run.FACTOR}
        assert on.cell.asked == same


def test_the_largest_change_is_the_cost():
    found = Findings([outcome(cell) for cell in run.STUDY.cells if cell.task == "lr"])
    assert run.cost(found) == pytest.approx(0.01)
    rows = rows_of(run.table(found, task="lr"))
    assert len(rows) == 48
    assert {row[7] for row in rows} == {"0", "\N{MINUS SIGN}0.0100"}
    assert {tuple(row[8:]) for row in rows} == {("7", "750", "3.0")}
