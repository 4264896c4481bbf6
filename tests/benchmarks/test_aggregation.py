"""What is made of the times of copies and folds."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.aggregation import Work, main, note
from benchmarks.page import grid, notes
from benchmarks.record import Record, read


def work(*wall_s: float) -> Work:
    return Work(print, list(wall_s), [2 * s for s in wall_s])


def test_folds_are_held_against_the_copy() -> None:
    record = Record("w7", "W7", machine={"name": "here", "cores": 2, "load": 0.0}, versions={})
    works = {"copy": work(1.0, 1.0, 2.0), "AFA-CD": work(2.0, 2.0, 4.0), "another": work(10.0)}
    works["another"].wall_s *= 3
    note(record, "16 MB, 1 thread", works, 8_000_000_000)
    copy, fold, other = record.measures
    assert (copy.median, copy.lowest) == (8.0, 4.0)  # 8 GB in a second, or in two
    assert (fold.median, other.median) == (4.0, 0.8)
    assert {r.name: r.value for r in record.ratios} == {"AFA-CD / copy": 0.5}
    note(record, "1 MB, 1 thread", {"copy": works["copy"]}, 8_000_000_000)
    assert grid(record).splitlines() == [
        "| | copy, GB/s | AFA-CD, GB/s | another, GB/s | AFA-CD / copy |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| 16 MB, 1 thread | 8 (4 to 8) | 4 (2 to 4) | 0.8 | 0.5 |",
        "| 1 MB, 1 thread | 8 (4 to 8) | - | - | - |",
    ]
    assert "GB/s" not in notes(record)  # the table has them


@pytest.mark.slow
def test_a_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.aggregation.SECONDS", 0.0)
    monkeypatch.setattr("benchmarks.aggregation.POOL_MB", 2)
    monkeypatch.setattr(
        "sys.argv",
        [
            "aggregation",
            "--sizes",
            "1",
            str(1 << 40),
            "--threads",
            "1",
            "--out",
            str(tmp_path / "kept"),
        ],
    )
    main()
    record = read(tmp_path / "kept")["w7"]
    assert {m.group for m in record.measures} == {"1 MB, 1 thread"}
    assert [b.name for b in record.bounds] == [f"AFA-C{x} / copy, the least" for x in "DS"]
    assert list(record.absent) == [f"{1 << 40} MB"]
    assert "needs" in record.absent[f"{1 << 40} MB"]
