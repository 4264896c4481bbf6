"""What scripts read: one JSON object, or nothing at all."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from anarchic.cli import scripts
from anarchic.cli.scripts import scripted
from anarchic.core.quiet import QUIET
from anarchic.server.exporting import FoldedAgain
from anarchic.server.store import open_store
from tests.browser.many import fill
from tests.report.make import make_run
from tests.server.make import begun


@pytest.fixture
def told(anarchic):
    """The JSON that a command prints, and nothing else; with --quiet it prints nothing."""

    def call(*words, code=0):
        quiet = anarchic(*words, "--quiet")
        assert (quiet.stdout, quiet.exit_code) == ("", code)
        shown = anarchic(*words, "--json")
        assert shown.exit_code == code
        if words[0] != "tune":  # it warns of values at the edge of a range
            assert quiet.stderr == shown.stderr == ""
        assert shown.stdout.count("\n") == 1
        return json.loads(shown.stdout)

    return call


def test_simulate_tells_its_summary(told, tmp_path):
    found = told("simulate", "--rounds", 3)
    assert (found["rounds"], found["out"]) == (3, None)
    assert 0 < found["final_accuracy"] <= 1
    assert told("simulate", "--rounds", 3, "--resume", "--out", recorded(tmp_path))["rounds"] == 3


def recorded(folder):
    from anarchic import Settings, simulate

    simulate(Settings(rounds=3), out=folder / "run")
    return folder / "run"


@pytest.mark.slow
def test_sweep_compare_and_tune_tell_their_groups(told, tmp_path):
    place = tmp_path / "sweep"
    few = ("--rounds", 2, "--out", place)
    plan = told("sweep", "--rule", "afa-cd,afa-cs", "--seed", "0-1", "--dry-run", *few)
    assert (plan["runs"], plan["missing"]) == (4, 4)
    found = told("sweep", "--rule", "afa-cd,afa-cs", "--seed", "0-1", *few)
    assert [(group["group"], group["runs"]) for group in found["groups"]] == [
        ("afa-cd", 2),
        ("afa-cs", 2),
    ]
    assert len(found["groups"][0]["final"]) == 2
    compared = told("compare", place, "--group-by", "rule", "--test", "afa-cd", "afa-cs")
    assert compared["groups"] == found["groups"]
    assert len(compared["tests"]) == 1
    tuned = told(
        "tune", "--rule", "afa-cd", "--budget", 2, "--rounds", 2, "--new-seed", "100-101",
        "--out", tmp_path / "tuned",
    )  # fmt: skip
    [rule] = tuned["rules"]
    assert (rule["rule"], len(rule["test"])) == ("afa-cd", 2)
    assert "server_lr" in rule["chosen"]


def test_compare_tells_its_rows(told, tmp_path):
    found = told("compare", make_run(tmp_path / "one"), make_run(tmp_path / "two", finished=False))
    assert [(row["name"], row["finished"], row["final"]) for row in found["runs"]] == [
        ("one", True, 0.8),
        ("two", False, 0.8),
    ]


@pytest.mark.parametrize("equal", [True, False])
def test_replay_tells_whether_it_is_equal(told, tmp_path, monkeypatch, equal):
    with closing(open_store(tmp_path / "run.db", keep_payloads=True)) as store:
        begun(store, m=2)
        fill(store, workers=2, updates=4, m=2)
    again = FoldedAgain(2, 4, equal)
    monkeypatch.setattr("anarchic.server.exporting.fold_again", lambda *given: again)
    found = told("replay", tmp_path / "run.db", code=0 if equal else 1)
    assert (found["version"], found["updates"], found["equal"]) == (2, 4, equal)


@pytest.mark.slow
def test_reproduce_can_be_quiet_and_errors_are_told_all_the_same(anarchic, refused):
    assert anarchic("reproduce", "--quiet").output == ""
    assert "Which experiment?" in refused(2, "reproduce", "--smoke", "--quiet")
    assert "leave one out" in refused(2, "simulate", "--json", "--quiet")


def test_progress_is_silent_and_what_is_not_finite_is_null(capsys):
    seen = []

    @scripted
    def command() -> None:
        seen.append(QUIET.get())
        scripts.found(value=float("nan"))

    command(as_json=True, quiet=False)
    command(as_json=False, quiet=False)
    assert seen == [True, False]
    assert capsys.readouterr().out == '{"value":null}\n'
