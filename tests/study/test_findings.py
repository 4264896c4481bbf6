from __future__ import annotations

import pytest

from anarchic.errors import ConfigError
from anarchic.study import Findings, Outcome
from anarchic.study.findings import difference, differences
from tests.study.make import cell, result


def outcome(name, values, paper=None, **columns):
    made = cell(name, paper=paper, **columns)
    return Outcome(made, [result(made, seed, value=v) for seed, v in enumerate(values)])


def test_an_outcome_is_the_mean_over_seeds_with_their_spread():
    found = outcome("a", [0.5, 0.6, 0.7], paper=0.55)
    assert found.ours == pytest.approx(0.6)
    assert found.spread == pytest.approx(0.1)  # sqrt((0.01 + 0 + 0.01) / 2)
    assert found.difference == pytest.approx(0.05)


def test_one_seed_has_no_spread_and_none_has_nothing():
    assert outcome("a", [0.5]).spread is None
    assert outcome("a", [0.5]).difference is None  # the paper has no such cell
    assert outcome("a", [], paper=0.5).ours is None


def test_the_mean_and_the_worst_difference():
    found = Findings(
        [
            outcome("a", [0.5], 0.6),
            outcome("b", [0.5], 0.48),
            outcome("c", [], 0.1),
            outcome("d", [0.5]),
        ]
    )
    assert found.mean_difference == pytest.approx(0.06)
    assert found.worst.cell.name == "a"
    assert Findings([]).mean_difference is None


def test_lines_are_selected_by_their_columns():
    found = Findings([outcome("a", [1], p=1), outcome("b", [2], p=2), outcome("c", [], p=5)])
    assert [x.cell.name for x in found.where(p=(1, 5))] == ["a", "c"]
    assert [x.cell.name for x in found.where(task="t", p=2)] == ["b"]
    assert [x.cell.name for x in found.run] == ["a", "b"]
    assert found.one(p=2).ours == 2
    with pytest.raises(ConfigError, match="0 cells"):
        found.one(p=3)


def test_findings_are_complete_when_every_line_has_results():
    assert Findings([outcome("a", [1])]).complete
    assert not Findings([outcome("a", [1]), outcome("b", [])]).complete
    assert not Findings([]).complete


def test_a_run_that_diverged_is_no_part_of_any_number():
    """Seeds 0 and 1 of the one, 1 and 2 of the other finished: seed 1 alone is compared."""

    def of(values, lost):
        made = cell("a")
        runs = [result(made, s, "diverged" if s == lost else None, value=v) for s, v in values]
        return Outcome(made, runs)

    one = of([(0, 0.5), (1, 0.7), (2, 0.1)], lost=2)
    other = of([(0, 0.1), (1, 0.4), (2, 0.9)], lost=0)
    assert one.ours == pytest.approx(0.6)
    assert one.by_seed() == {0: 0.5, 1: 0.7}
    assert differences(one, other) == {1: pytest.approx(0.3)}
    assert difference(one, other) == pytest.approx(0.3)
    gone = of([(0, 0.5)], lost=0)
    assert (gone.lost, gone.ours, difference(one, gone)) == (True, None, None)
    assert not Outcome(cell("a")).lost
    assert len(Findings([one, gone]).lost) == 1
