"""What a visit costs in the event queue, kept as a line and written to the page."""

from __future__ import annotations

import pytest
from benchmarks.page import BEGIN, END, QUEUE, filled, queue_table
from benchmarks.record import Record, read

from benchmarks import event_queue


def test_every_case_is_kept_with_its_bound(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(event_queue, "WORKERS", 600)
    out = tmp_path / "results.jsonl"
    asked = ["event_queue", "--updates", "1000", "--repeats", "2", "--out", str(out)]
    monkeypatch.setattr("sys.argv", asked)
    event_queue.main()
    record = read(out)["event_queue"]
    groups = {m.group for m in record.measures}
    assert {"limit", "limit, diurnal", "cohorts"} <= groups
    assert "cohorts, diurnal" not in groups  # the server picks, whoever is awake
    assert len(record.measures) == 2 * len(groups)
    rates = [m.median for m in record.measures if m.unit == "1/min"]
    assert [bound.value for bound in record.bounds] == [pytest.approx(min(rates), rel=1e-4)]
    assert {m.repeats for m in record.measures} == {2}
    assert "limit, diurnal CPU per visit" in capsys.readouterr().out


def test_a_visit_s_time_and_rate_stand_side_by_side(tmp_path):
    record = Record("event_queue", "Event queue", machine={"name": "x", "cores": 1, "load": 0.0})
    record.measure("CPU per visit", [10.0, 12.0, 11.0], unit="µs", better="lower", group="limit")
    record.measure("visits per minute", [6e6, 5e6, 5.5e6], unit="1/min", group="limit")
    found = queue_table(record)
    assert "| | CPU per visit, µs | visits per minute, 1/min |" in found
    assert "| limit | 11 (10 to 12) | 5,500,000 (5,000,000 to 6,000,000) |" in found


def test_the_page_has_the_kept_result():
    text = QUEUE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    if (record := read().get("event_queue")) is None:
        pytest.skip("Not measured yet: python -m benchmarks event_queue")
    assert text == filled(text, queue_table(record)), "run: python -m benchmarks.page"
