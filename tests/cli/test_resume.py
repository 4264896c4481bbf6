"""``anarchic simulate --resume``: how far a run goes, and with which callbacks."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")


def test_resume_with_an_earlier_end_is_refused_in_one_sentence(refused, anarchic, tmp_path):
    run, clock = tmp_path / "run", ("--participation", "exponential", "--batch", 8)
    assert anarchic("simulate", *clock, "--until-s", 6, "--out", run).exit_code == 0
    assert anarchic("simulate", "--resume", "--until-s", 9, "--out", run).exit_code == 0
    line = refused(1, "simulate", "--resume", "--until-s", 7, "--out", run)
    assert line == (
        f"Error: {run} holds a longer run (until_s is 9.0 there and 7.0 here), which cannot be "
        "made shorter: resume it without that setting, or choose another directory."
    )


def test_a_resumed_run_has_the_callbacks_that_it_was_started_with(anarchic, tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    words = ("simulate", "--eval-every", 2, "--batch", 8, "--checkpoint-every", 2)
    kept = ("--callback", "keep-best")
    assert anarchic(*words, *kept, "--rounds", 6, "--out", run).exit_code == 0
    first = (run / "best.safetensors").read_bytes()
    assert json.loads((run / "settings.json").read_text())["callbacks"] == ["keep-best"]
    assert anarchic("simulate", "--resume", "--rounds", 20, "--out", run).exit_code == 0
    assert anarchic(*words, *kept, "--rounds", 20, "--out", whole).exit_code == 0
    best = (run / "best.safetensors").read_bytes()
    assert best == (whole / "best.safetensors").read_bytes() != first
    other = anarchic(
        "simulate", "--resume", "--rounds", 22, "--out", run, "--callback", "early-stop"
    )
    assert other.exit_code == 0, other.output
    assert json.loads((run / "settings.json").read_text())["callbacks"] == ["early-stop"]
    assert (run / "best.safetensors").read_bytes() == best
