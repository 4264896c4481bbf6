from __future__ import annotations

import pytest

from tests.report.make import make_run


def test_a_report_is_written_to_a_file(anarchic, tmp_path):
    run, out = make_run(tmp_path / "one"), tmp_path / "new" / "report.html"
    shown = anarchic("report", run, "--out", out)
    assert shown.output == f"Written to {out}.\n"
    assert out.read_text().startswith("<!doctype html>")


def test_a_report_without_accuracy_says_which_metrics_there_are(anarchic, tmp_path):
    run, out = make_run(tmp_path / "one", judged=False), tmp_path / "report.html"
    told = anarchic("report", run, "--out", out).output.splitlines()[-1]
    hint = "Without accuracy: one. There are loss: anarchic compare RUN --metric NAME shows one"
    assert told == f"{hint} of them."


def test_an_ending_that_is_no_format_is_told(refused, tmp_path):
    told = refused(2, "report", make_run(tmp_path / "one"), "--out", tmp_path / "r.docx")
    assert "got 'r.docx': change the ending" in told


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_view_checks_its_port(refused, tmp_path, port):
    told = refused(2, "view", make_run(tmp_path / "one"), "--port", port)
    assert f"got --port {port}" in told


def test_a_view_of_nothing_is_refused(refused, tmp_path):
    assert "does not exist" in refused(1, "view", tmp_path / "nothing")
