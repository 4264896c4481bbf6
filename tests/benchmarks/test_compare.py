from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.compare import compare, main
from benchmarks.record import Record, keep


def record(median: float, *, ratio: float = 8.0, machine: str = "here", better: str = "higher"):
    made = Record("w1", "W1", machine={"name": machine, "load": 0.0}, versions={})
    values = [0.95 * median, median, 1.05 * median]
    made.measure("ours", values, unit="steps/s", better=better)  # type: ignore[arg-type]
    made.ratio("ours / theirs", ratio)
    return made


@pytest.mark.parametrize(
    ("after", "better", "gain", "worse"),
    [
        (120.0, "higher", 1.2, False),
        (92.0, "higher", 0.92, False),  # less than a tenth
        (80.0, "higher", 0.8, True),
        (125.0, "lower", 0.8, True),  # seconds
    ],
)
def test_what_lost_a_tenth_is_worse(after: float, better: str, gain: float, worse: bool) -> None:
    old, new = record(100.0, better=better), record(after, better=better)
    change = next(compare({"w1": old}, {"w1": new}))
    assert change.gain == pytest.approx(gain)
    assert change.mark == ("WORSE" if worse else "")


def test_noise_within_the_earlier_spread_is_not_worse() -> None:
    old = record(100.0)
    old.measures.clear()
    old.measure("ours", [70.0, 100.0, 110.0], unit="steps/s")
    assert not next(compare({"w1": old}, {"w1": record(80.0)})).mark


@pytest.mark.parametrize(("after", "mark"), [(80.0, ""), (70.0, "WORSE")])
def test_what_was_measured_once_may_lose_a_quarter(after: float, mark: str) -> None:
    old, new = record(100.0), record(after)
    old.measures.clear()
    old.measure("ours", [100.0], unit="steps/s")
    assert next(compare({"w1": old}, {"w1": new})).mark == mark


def test_what_has_gone_and_what_is_missed_now_is_shown() -> None:
    old, new = record(100.0), record(100.0)
    new.measures.clear()
    new.ratios.clear()
    for made, value in ((old, 9.0), (new, 7.0)):
        made.bound("times theirs", value, least=8.0)
        made.bound("never met", value, least=10.0)
    assert [(c.what, c.before, c.after, c.mark) for c in compare({"w1": old}, {"w1": new})] == [
        ("w1:  ours, steps/s", 100.0, None, "GONE"),
        ("w1:  ours / theirs", 8.0, None, "GONE"),
        ("w1: times theirs", 9.0, 7.0, "MISSED"),
    ]


def test_on_another_machine_only_ratios_count() -> None:
    old, new = record(100.0), record(10.0, ratio=6.0, machine="there")
    (change,) = compare({"w1": old}, {"w1": new})
    assert (change.what, change.mark) == ("w1:  ours / theirs", "WORSE")


def test_files_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(100.0).write(tmp_path / "before")
    record(50.0).write(tmp_path / "after")
    keep({"name": "plan"}, tmp_path / "after")  # not a record: left alone
    assert main([str(tmp_path / "before"), str(tmp_path / "after")]) == 1
    assert "WORSE" in capsys.readouterr().out
    assert main([str(tmp_path / "before"), str(tmp_path / "before")]) == 0
