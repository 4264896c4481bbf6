from __future__ import annotations

import pytest


@pytest.mark.slow
def test_alone_it_lists_the_experiments(anarchic):
    shown = anarchic("reproduce")
    assert shown.exit_code == 0
    assert "table-1" in shown.output
    assert "Table 1: synchrony and asynchrony" in shown.output


def test_it_runs_one_in_small(anarchic, tmp_path):
    pytest.importorskip("torch")
    flags = ("--smoke", "--task", "lr", "--only", "p1-m5-M10-K5-*", "--out", tmp_path)
    shown = anarchic("reproduce", "table-1", *flags)
    assert shown.exit_code == 0, shown.output
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 4
    assert "Smoke run, not a result" in (tmp_path / "README.md").read_text()


def test_an_interrupted_one_says_how_to_go_on(anarchic, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("anarchic.study.reproduce.reproduce", interrupt)
    shown = anarchic("reproduce", "table-1")
    assert (shown.exit_code, shown.stderr) == (130, "Interrupted. To go on, add --resume.\n")


def test_misuse_is_one_line(refused):
    assert "Which experiment?" in refused(2, "reproduce", "--smoke")
    assert "there are" in refused(2, "reproduce", "table-9")
    assert "it has lr, cnn, rnn" in refused(2, "reproduce", "table-1", "--task", "gpt")
    assert "for one experiment" in refused(2, "reproduce", "all", "--report", "--out", "x")
