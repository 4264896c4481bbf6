"""Looking at a run that somebody else wrote executes no code that it names."""

import json

import pytest

EVIL = {"rule": "subprocess:Popen", "m": None, "server_lr": None, "server_opt": None}


@pytest.fixture
def evil(anarchic, tmp_path):
    """A run directory whose rule would make a file."""
    run, made = tmp_path / "run", tmp_path / "made"
    anarchic("simulate", "--rounds", "2", "--out", run)
    settings = json.loads((run / "settings.json").read_text())
    settings |= {**EVIL, "rule_options": {"args": ["touch", str(made)]}}
    (run / "settings.json").write_text(json.dumps(settings))
    return run, made


def test_a_report_runs_no_rule_that_a_directory_names(refused, evil, tmp_path):
    run, made = evil
    told = refused(2, "report", run, "--out", tmp_path / "report.html")
    assert "names the rule 'subprocess:Popen'" in told
    assert "add --trust" in told
    assert not made.exists()


def test_a_server_step_is_not_run_either(refused, evil, tmp_path):
    run, made = evil
    settings = json.loads((run / "settings.json").read_text())
    options = {"server_opt": "subprocess:Popen", "server_options": settings["rule_options"]}
    (run / "settings.json").write_text(
        json.dumps(settings | {"rule": "afa-cd", "rule_options": {}} | options)
    )
    assert "names the server optimiser" in refused(
        2, "report", run, "--out", tmp_path / "report.html"
    )
    assert not made.exists()


def test_a_picture_of_a_report_runs_none(refused, evil, tmp_path):
    run, made = evil
    refused(2, "report", run, "--out", tmp_path / "report.png")
    assert not made.exists()


def test_a_rule_of_ones_own_is_run_with_trust(anarchic, tmp_path):
    run = tmp_path / "run"
    rule = "tests.core.rules.decaying:Decaying"
    anarchic("simulate", "--rule", rule, "--rounds", "3", "--out", run)
    told = anarchic("report", run, "--trust", "--out", tmp_path / "report.html")
    assert told.exit_code == 0, told.output
