from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.record import Bound, Record, read, said, short, spread


def test_the_median_and_the_spread_are_kept() -> None:
    record = Record("some", "Something")
    assert record.measure("ours", [3.0, 1.0, 10.0], unit="steps/s") == 3.0
    (kept,) = record.measures
    assert (kept.lowest, kept.median, kept.highest, kept.repeats) == (1.0, 3.0, 10.0, 3)


@pytest.mark.parametrize(
    ("bound", "met"),
    [
        (Bound("a", 8.0, least=8.0), True),
        (Bound("a", 7.9, least=8.0), False),
        (Bound("a", 4.1, most=4.0), False),
        (Bound("a", None, least=1.0), False),  # not measured is not met
        (Bound("a", float("nan"), most=4.0), False),
    ],
)
def test_bounds(bound: Bound, met: bool) -> None:
    assert bound.met is met


def test_the_status_says_whether_all_bounds_are_met(tmp_path: Path) -> None:
    record = Record("some", "Something")
    record.ratio("ours / theirs", 2.0, least=1.5)
    assert record.finish(tmp_path / "kept") == 0
    record.bound("seconds", 5.0, most=4.0)
    assert record.finish(tmp_path / "kept") == 1


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = Record("some", "Something", absent={"theirs": "not installed"})
    record.measure("ours", [1.5], unit="s", better="lower", group="W1", facts={"accuracy": 0.5})
    record.ratio("ours / theirs", None, least=8.0)
    other = Record("another", "Something else")
    for kept in (Record("some", "Something before"), record, other):
        kept.write(tmp_path / "kept")
    assert list(read(tmp_path / "kept").items()) == [("another", other), ("some", record)]


def test_the_table_names_what_was_missed() -> None:
    record = Record("some", "Something", absent={"theirs": "not installed"})
    record.bound("times theirs", None, least=8.0)
    assert "MISSED  times theirs: -, at least 8" in record.table()
    assert "theirs: not measured, not installed" in record.table()


def test_numbers_are_short() -> None:
    assert [short(v) for v in (12_345.6, 12.345, 0.5, None)] == ["12,346", "12.3", "0.5", "-"]
    assert said(Bound("a", 2.0, least=1.0, most=3.0)) == "2, at least 1 and at most 3"


def test_digits_tell_a_value_from_its_limit() -> None:
    assert said(Bound("a", 13.98, most=14.0)) == "13.98, at most 14"
    assert said(Bound("a", 14.0, most=14.0)) == "14, at most 14"
    assert said(Bound("a", 9_999.7, least=10_000.0)) == "9,999.7, at least 10,000"
    assert said(Bound("a", None, least=1.0)) == "-, at least 1"


def test_a_spread_is_shown_where_there_is_one() -> None:
    record = Record("some", "Something")
    record.measure("ours", [3.0, 1.0, 10.0], unit="s")
    record.measure("once", [3.0], unit="s")
    assert [spread(m) for m in record.measures] == ["3 (1 to 10)", "3"]
