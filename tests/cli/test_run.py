"""``anarchic run``: begin and list the runs of a server, and what a server of several refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from anarchic import Layout, wire
from anarchic.server.settings import KeepSettings
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token
from tests.chaos.servers import free_port
from tests.cli.test_app import COMMANDS
from tests.cli.test_serve import RULES, words


@pytest.fixture
def model(tmp_path):
    layout = Layout.of({"w": ((2,), "F32")})
    wire.save_model(tmp_path / "model.safetensors", layout, np.zeros(2, np.float32))
    return tmp_path / "model.safetensors"


def begun(place):
    store = open_store(place, create=False)
    try:
        return store.run()
    finally:
        store.close()


def test_every_setting_of_a_rule_can_be_given(anarchic, model, tmp_path):
    where = tmp_path / "new" / "runs"
    asked = ("create", "mnist", "--store", where, "--init", model, "--keep-payloads")
    shown = anarchic("run", *asked, *words(RULES))
    assert shown.exit_code == 0, shown.output
    assert "anarchic work --run mnist" in shown.output
    run = begun(where / "mnist.db")
    assert run.keep_payloads
    for _, name, value in RULES.values():
        assert run.settings[name] == value
    flags = {flag for parameter in COMMANDS["run create"].params for flag in parameter.opts}
    own = {f"--{name.replace('_', '-')}" for name in KeepSettings.__dataclass_fields__}
    assert flags - {"name"} == {
        *RULES,
        *own,
        "--store",
        "--init",
        "--keep-payloads",
        "--rule-option",
    }
    assert where.stat().st_mode & 0o077 == 0


KEPT = {
    "history": 4,
    "history_bytes": 5000,
    "keep_every": 3,
    "keep_best": "seen",
    "target": "seen=5",
    "max_versions": 6,
    "compact_after": "90d",
    "evaluate": "tests.server.evaluations:seen",
}


@pytest.mark.slow
def test_what_is_kept_and_when_it_ends_is_recorded_and_holds_for_its_servers(
    anarchic, refused, model, tmp_path, monkeypatch
):
    where = tmp_path / "runs"
    flags = [word for n, v in KEPT.items() for word in (f"--{n.replace('_', '-')}", v)]
    asked = ("run", "create", "mnist", "--store", where, "--init", model, *flags)
    assert anarchic(*asked).exit_code == 0
    assert begun(where / "mnist.db").settings["kept"] == KEPT
    assert begun(where / "mnist.db").settings["rule"] == "afa-cd"
    found = []
    monkeypatch.setattr("anarchic.server.serve.listen", lambda service, _: found.append(service))
    served = ("serve", "--store", where / "mnist.db", "--open-enrolment", "--port", free_port())
    for more, last in (((), 6), (("--max-versions", 9), 9)):  # what is given counts first
        shown = anarchic(*served, *more)
        assert shown.exit_code == 0, shown.output
        assert found[-1].steering.max_versions == last
        assert found[-1].store.versions.every == 3
        assert found[-1]._parts.compactor._after_s == 90 * 86_400
        found[-1]._parts.stop()
    told = refused(
        2, "run", "create", "other", "--store", where, "--init", model, "--target", "a=1"
    )
    assert "--target needs evaluations" in told
    assert "compact-after deletes what" in refused(
        2, "run", "create", "other", "--store", where, "--init", model, "--keep-payloads",
        "--compact-after", "9d",
    )  # fmt: skip
    told = refused(
        2, "run", "create", "other", "--store", where, "--init", model,
        "--evaluate", KEPT["evaluate"], "--keep-best", "sen",
    )  # fmt: skip
    assert "Did you mean 'seen'?" in told
    assert not (where / "other.db").exists()
    assert anarchic("status", where / "mnist.db").exit_code == 0


def test_a_refused_run_leaves_nothing_behind(refused, model, tmp_path):
    where = tmp_path / "runs"
    wrong = {
        "A run's name has": ("Wrong", "--init", model),
        "AfaCd needs a whole number m >= 1": ("mnist", "--init", model, "--m", 0),
    }
    for told, (name, *others) in wrong.items():
        assert told in refused(2, "run", "create", name, "--store", where, *others)
    missing = ("mnist", "--store", where, "--init", tmp_path / "none")
    assert "No such file" in refused(1, "run", "create", *missing)
    assert not where.exists()


def test_a_name_that_is_taken_is_refused(anarchic, refused, model, tmp_path):
    asked = ("run", "create", "mnist", "--store", tmp_path / "runs", "--init", model)
    anarchic(*asked)
    before = begun(tmp_path / "runs" / "mnist.db")
    assert "There is a run 'mnist' already" in refused(2, *asked)
    assert begun(tmp_path / "runs" / "mnist.db") == before


def test_the_list_shows_where_runs_stand_and_what_is_wrong(anarchic, refused, model, tmp_path):
    where = tmp_path / "runs"
    anarchic("run", "create", "mnist", "--store", where, "--init", model, "--m", 3)
    add_token(where / "mnist.db", "ann")
    add_token(where / "mnist.db", "olga", rights="operate")  # no worker
    add_token(where / "soon.db", "ann")
    anarchic("set", where / "mnist.db", "m=4")
    (where / "bad.db").write_bytes(b"x" * 5000)
    found = {
        row["name"]: row for row in json.loads(anarchic("run", "list", where, "--json").output)
    }
    about = {"version": 0, "rule": "afa-cd", "m": 4, "workers": 1, "problem": None}
    assert found["mnist"] == {**about, "name": "mnist", "run": found["mnist"]["run"]}
    assert "It has not begun" in found["soon"]["problem"]
    assert "not a database" in found["bad"]["problem"]
    shown = anarchic("run", "list", where).output
    assert all(name in shown for name in found)
    anarchic("store", "backup", where / "mnist.db", "--out", where / "monday.db")
    rows = json.loads(anarchic("run", "list", where, "--json").output)
    problems = {row["name"]: row["problem"] for row in rows}
    assert problems["mnist"] is None
    assert "the same run as mnist" in problems["monday"]
    assert "No such file" in refused(1, "run", "list", tmp_path / "none")


@pytest.mark.parametrize("given", [("--init", "m"), ("--m", "3"), ("--evaluate", "a:b")])
def test_a_server_of_several_runs_takes_no_settings_of_one(refused, tmp_path, given):
    told = refused(2, "serve", "--store", tmp_path, "--open-enrolment", *given)
    assert f"{given[0][2:]} belongs to one run" in told
    assert "anarchic run create" in told


def test_several_runs_in_one_file_are_refused(refused, tmp_path):
    (tmp_path / "run.db").touch()
    told = refused(2, "serve", "--store", tmp_path / "run.db", "--runs", "--open-enrolment")
    assert "is the store of one run" in told
