from __future__ import annotations

import pytest

from anarchic.errors import ConfigError
from anarchic.study import Findings, Line
from tests.study.make import cell, result


def line(name, values, paper=None, **columns):
    made = cell(name, paper=paper, **columns)
    return Line(made, [result(made, seed, value=v) for seed, v in enumerate(values)])


def test_a_line_is_the_mean_over_seeds_with_their_spread():
    found = line("a", [0.5, 0.6, 0.7], paper=0.55)
    assert found.ours == pytest.approx(0.6)
    assert found.spread == pytest.approx(0.1)  # sqrt((0.01 + 0 + 0.01) / 2)
    assert found.difference == pytest.approx(0.05)


def test_one_seed_has_no_spread_and_none_has_nothing():
    assert line("a", [0.5]).spread is None
    assert line("a", [0.5]).difference is None  # the paper has no such cell
    assert line("a", [], paper=0.5).ours is None


def test_the_mean_and_the_worst_difference():
    found = Findings(
        [line("a", [0.5], 0.6), line("b", [0.5], 0.48), line("c", [], 0.1), line("d", [0.5])]
    )
    assert found.mean_difference == pytest.approx(0.06)
    assert found.worst.cell.name == "a"
    assert Findings([]).mean_difference is None


def test_lines_are_selected_by_their_columns():
    found = Findings([line("a", [1], p=1), line("b", [2], p=2), line("c", [], p=5)])
    assert [x.cell.name for x in found.where(p=(1, 5))] == ["a", "c"]
    assert [x.cell.name for x in found.where(task="t", p=2)] == ["b"]
    assert [x.cell.name for x in found.run] == ["a", "b"]
    assert found.one(p=2).ours == 2
    with pytest.raises(ConfigError, match="0 cells"):
        found.one(p=3)


def test_findings_are_complete_when_every_line_has_results():
    assert Findings([line("a", [1])]).complete
    assert not Findings([line("a", [1]), line("b", [])]).complete
    assert not Findings([]).complete
