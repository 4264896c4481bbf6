from __future__ import annotations

import json
from math import nan

import pytest

from anarchic.page.window import HEAT_COLUMNS, HEAT_ROWS, MOST_MARKS, Window, WindowRow, marks_each


def folded(worker="ann", end_s=1.0, base=0, version=1, **others):
    facts = {"start_s": nan, "steps": 5, "lr": 0.1, "norm": 1.0, **others}
    return WindowRow(worker=worker, end_s=end_s, base=base, version=version, **facts)


def window(*rows, most=100):
    made = Window(most)
    made.add(rows)
    return made


def test_staleness_is_that_of_the_version_that_a_step_started_from():
    # Version 3 was made of version 2; a base of 0 is two versions late.
    found = window(folded(base=2, version=3), folded(base=0, version=3), folded(version=0))
    assert found.staleness().tolist() == [0, 2]  # the one that was set aside has none


def test_only_the_newest_updates_are_kept_and_their_names_with_them():
    made = Window(most=10)
    for number in range(200):
        made.add([folded(worker=f"w{number}", end_s=float(number))])
    assert len(made.rows) == 10
    assert len(made.names) <= 21
    assert made.marks("w199", (0, 200)) == [[None, 199.0, 0, 5]]
    assert made.marks("w1", (0, 200)) == []


def test_norms_far_above_the_median_are_outliers_by_name():
    found = window(*[folded(norm=1.0)] * 9, folded("max", norm=50.0)).histograms()["norms"]
    assert (found["median"], found["limit"], found["outliers"]) == (1.0, 10.0, 1)
    assert found["newest"] == [{"worker": "max", "times": 50.0}]


def test_marks_say_when_how_late_and_how_hard():
    found = window(folded(start_s=3.0, end_s=4.0, base=1, version=4, steps=7), folded(version=0))
    assert found.marks("ann", (0, 10)) == [[3.0, 4.0, 2, 7], [None, 1.0, None, 5]]
    assert found.marks("ann", (3.5, 10)) == [[3.0, 4.0, 2, 7]]
    assert found.marks("nobody", (0, 10)) == []


def test_the_heat_map_is_bounded():
    many = window(*(folded(f"w{i % 500}", end_s=i / 100) for i in range(5000)), most=5000)
    heat = many.heat((0, 50))
    assert (heat["workers"], heat["rows"]) == (500, HEAT_ROWS)
    assert len(heat["counts"]) == HEAT_ROWS * HEAT_COLUMNS
    assert sum(heat["counts"]) == 5000


def test_a_strip_is_cut_in_time_and_no_row_lacks_marks():
    each = marks_each(40)
    assert 40 * each == MOST_MARKS
    busy = [folded("ada", end_s=i / 10) for i in range(2 * each)]
    found = window(*busy, folded("bob", end_s=0.5), folded("bob", end_s=8.0), most=5000)
    names = ["ada", "bob", *(f"w{i}" for i in range(38))]
    span = found.fitted(names, (0.0, 20.0))
    assert span == (pytest.approx(each / 10), 20.0)
    assert len(found.marks("ada", span, each)) == each
    assert found.marks("bob", span, each) == [[None, 8.0, 0, 5]]
    assert found.fitted(["bob"], (0.0, 20.0)) == (0.0, 20.0)


def test_the_heat_map_has_the_busiest_on_top():
    found = window(folded("bob", 1.0), *[folded("ann", 9.9)] * 3).heat((0, 10))
    first, second = found["counts"][:HEAT_COLUMNS], found["counts"][HEAT_COLUMNS:]
    assert (sum(first), first[-1]) == (3, 3)
    assert (sum(second), second[4]) == (1, 1)  # 1 s of 10 s in 48 columns


def test_the_pace_is_per_second():
    rates = window(*[folded(end_s=9.99)] * 10).pace((0, 48))
    assert rates[9] == 10
    assert sum(rates) == 10


def test_the_span_grows_with_the_time_between_updates():
    assert window().span(100.0) == (70.0, 100.0)
    assert window(folded(end_s=0.0)).span(100.0) == (-20.0, 100.0)
    assert window(folded(end_s=0.0)).span(4_000_000.0) == pytest.approx((0.0, 4_000_000.0))


def test_an_empty_window_has_empty_pictures():
    found = window()
    assert found.histograms() == {"updates": 0, "staleness": [], "steps": [], "norms": None}
    assert found.heat((0, 1))["counts"] == []
    assert set(found.pace((0, 1))) == {0}


def test_norms_of_next_to_nothing_leave_no_infinity():
    found = window(*[folded(norm=1e-312)] * 9, folded("max", norm=50.0)).histograms()
    assert found["norms"]["newest"] == [{"worker": "max", "times": None}]
    assert json.dumps(found, allow_nan=False)
