"""What is made of the rates of stores and files."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.store import judge, keep


def test_stores_are_held_against_a_file() -> None:
    record = Record("store", "Store", machine={"name": "here", "load": 0.0}, versions={})
    keep(record, "SQLite, 4 MB, groups of 4", [60.0, 50.0, 70.0], [100.0] * 3)
    keep(record, "SQLite, 0.04 MB, groups of 64", [1_400.0] * 3, [9_000.0] * 3)
    keep(record, "PostgreSQL, 4 MB, groups of 4", [1.0] * 3, [100.0] * 3)
    judge(record)
    assert [(bound.name, bound.value, bound.met) for bound in record.bounds] == [
        ("SQLite, 4 MB, groups of 4: store / file", 0.6, True),
        ("SQLite, 0.04 MB, groups of 64: updates/s", 1_400.0, False),
    ]
