from __future__ import annotations

import pytest

from anarchic.page.influence import POINTS, influence


def test_the_gini_index_of_numbers_by_hand():
    # Sorted 1, 2, 3: (-2 * 1 + 0 * 2 + 2 * 3) / (3 * 6) = 4 / 18
    assert influence([3.0, 1.0, 2.0])["gini"] == pytest.approx(4 / 18, abs=1e-6)


def test_equal_shares_have_an_index_of_zero_and_one_alone_comes_near_one():
    assert influence([0.2] * 5)["gini"] == 0
    assert influence([0.0] * 99 + [1.0])["gini"] == pytest.approx(0.99)


def test_workers_that_are_added_up_count_as_many_with_equal_shares():
    assert influence([0.5], others=2, rest=0.5) == influence([0.25, 0.5, 0.25])


def test_the_lorenz_curve_says_what_the_least_influential_have():
    found = influence([0.1, 0.2, 0.7])["lorenz"]
    assert [y for _, y in found] == pytest.approx([0, 0.1, 0.3, 1], abs=1e-5)
    assert len(influence([1.0] * 10_000)["lorenz"]) == POINTS


def test_a_run_without_updates_has_no_index():
    assert influence([]) == {"gini": None, "lorenz": [], "workers": 0}
    assert influence([0.0, 0.0])["gini"] is None
