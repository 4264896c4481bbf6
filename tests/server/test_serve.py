"""``anarchic.server.run``, as a Python caller calls it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict

import pytest

from anarchic import AfaCd, Snapshot, server, wire
from anarchic.core.guard import FACTOR
from anarchic.errors import ConfigError
from anarchic.server import Address, Limits, RuleSettings, RunSettings, ServerSettings
from anarchic.server.fold import encode_state
from tests.chaos.servers import ServerProcess, write_model
from tests.cli.test_serve import free_port
from tests.server.make import LAYOUT, first_params

OPEN = ServerSettings(open_enrolment=True, limits=Limits(per_worker=3))


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Calls ``run`` up to where it would listen; gives the service and the address."""
    wire.save_model(tmp_path / "model.safetensors", LAYOUT, first_params())
    met = []
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *given: met.append(given))

    def call(init="model.safetensors", settings=OPEN, **given):
        run = RunSettings(store=tmp_path / "run.db", init=init and tmp_path / init, history=5)
        address = Address(port=free_port())
        quiet = {"log": lambda event, **facts: None}
        server.run(run, settings=settings, address=address, **given, **quiet)
        service, listens_on = met[-1]
        assert listens_on is address
        return service

    return call


@pytest.mark.slow
def test_a_run_is_not_begun_for_a_metric_that_its_judge_does_not_return(tmp_path, monkeypatch):
    wire.save_model(tmp_path / "model.safetensors", LAYOUT, first_params())
    listened = []
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *given: listened.append(given))

    def begin(name, **goal):
        run = RunSettings(
            store=tmp_path / "run.db",
            init=tmp_path / "model.safetensors",
            evaluate=f"tests.server.evaluations:{name}",
            **goal,
        )
        server.run(
            run, settings=OPEN, address=Address(port=free_port()), log=lambda event, **facts: None
        )

    for goal in ({"keep_best": "accuracy"}, {"target": "accuracy=1"}):
        with pytest.raises(ConfigError, match=r"accuracy has no effect: the evaluation has "):
            begin("named", **goal)
    assert not (tmp_path / "run.db").exists()
    begin("failing", keep_best="accuracy")  # it cannot say what it will return
    assert len(listened) == 1


def test_a_run_is_begun_and_gone_on_with(served):
    first = served(rules=RuleSettings(m=3))
    assert (first.rules, first.settings) == (RuleSettings(m=3, guard=FACTOR), OPEN)
    assert served(init=None).run == first.run  # what is not given need not agree
    assert served(rules={"m": 3}).run == first.run
    for rules in ({"m": 4}, RuleSettings(m=5)):
        with pytest.raises(ConfigError, match=r"m is 3 there and [45] here"):
            served(rules=rules)


def test_a_run_that_begins_has_a_guard_unless_it_is_told_not_to(served):
    assert served(rules={"guard": 0.0}).rules.guard == 0.0
    for rules in (RuleSettings(), {}):  # nothing is said about the guard
        assert served(rules=rules).rules.guard == 0.0
    with pytest.raises(ConfigError, match=r"guard is 0.0 there and 5.0 here"):
        served(rules={"guard": 5.0})


def test_a_run_from_before_there_was_a_guard_goes_on_without_one(served, tmp_path):
    told = {name: value for name, value in asdict(RuleSettings(m=3)).items() if name != "guard"}
    with closing(server.open_store(tmp_path / "run.db")) as store:
        rule = AfaCd(m=3)
        state = rule.init(first_params())
        body = wire.encode_snapshot(LAYOUT, Snapshot(0, state.params), "a")
        settings = {**told, "run": "a", **asdict(LAYOUT)}
        store.create(settings, body, encode_state(rule, state))
    for rules in (None, RuleSettings(m=3), {"guard": 0.0}):
        assert served(init=None, rules=rules).rules == RuleSettings(m=3, guard=0.0)
    with pytest.raises(ConfigError, match=r"guard is 0.0 there and 30.0 here"):
        served(init=None, rules={"guard": 30.0})


def test_nothing_is_begun_where_nobody_may_push(served, tmp_path):
    with pytest.raises(ConfigError, match="Nobody may push"):
        served(settings=None)
    with closing(server.open_store(tmp_path / "run.db")) as store:
        assert store.run() is None


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, anarchic.server as s; s.RunSettings, s.Address, s.Limits;"
        "print([m for m in ('sqlalchemy', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_public_name_can_be_loaded():
    assert all(hasattr(server, name) for name in server.__all__)
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = server.walk


@pytest.mark.slow
def test_a_damaged_model_is_told_in_sentences(tmp_path):
    store, init = str(tmp_path / "run.db"), write_model(tmp_path / "model")
    damaged = ServerProcess(store, init, tmp_path / "log", "--open-enrolment")
    with damaged:
        assert damaged.stop() == 0
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("update models set body = zeroblob(length(body))")
        connection.commit()
    damaged.log.unlink()
    damaged.start()
    assert damaged.wait() == 1
    text = damaged.text()
    assert "Traceback" not in text
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert "store_corrupt" in [line["event"] for line in events]
    assert text.splitlines()[-1].startswith("Error: ")
