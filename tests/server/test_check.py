"""``anarchic serve --check``: what it finds, and that it writes nothing."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from anarchic import Layout, wire
from anarchic.core.certificates import alternative_names
from anarchic.server.accounts import new_token, put_account
from anarchic.server.check import check
from anarchic.server.operate import steer
from anarchic.server.records import NewUpdate
from anarchic.server.runs import begin
from anarchic.server.settings import Address, RuleSettings, RunSettings, ServerSettings
from anarchic.server.store import open_store
from tests.chaos.servers import free_port
from tests.cli.conftest import contents

LAYOUT = Layout.of({"w": ((2,), "F32")})
OPEN = ServerSettings(open_enrolment=True)


@pytest.fixture
def model(tmp_path):
    wire.save_model(tmp_path / "model.safetensors", LAYOUT, np.zeros(2, np.float32))
    return tmp_path / "model.safetensors"


@pytest.fixture
def store(tmp_path):
    """A store with a run at version 0, closed."""
    with closing(open_store(tmp_path / "run.db")) as opened:
        begin(opened, RuleSettings(m=2), LAYOUT, np.zeros(2, np.float32))
    return tmp_path / "run.db"


def found(where, *, rules=None, settings=OPEN, address=None, **run):
    address = address or Address(port=free_port())
    given = RunSettings(store=where, **run)
    checks = check(given, rules=rules, settings=settings, address=address)
    return {each.check: (each.status, each.message) for each in checks}


def not_ok(findings):
    return {name: told for name, told in findings.items() if told[0] != "ok"}


def test_a_run_to_begin_is_looked_at_and_nothing_is_written(tmp_path, model):
    before = contents(tmp_path)
    findings = found(tmp_path / "run.db", init=model)
    assert not_ok(findings) == {}
    assert "2 numbers in 1 tensors, rule afa-cd, m=5" in findings["run"][1]
    assert list(findings) == [
        *(
            "address",
            "tls",
            "store",
            "run",
            "tokens",
            "disk",
            "memory",
            "evaluate",
            "callback",
            "clock",
        )
    ]
    assert contents(tmp_path) == before


def test_a_run_to_go_on_with_is_looked_at_and_nothing_is_written(tmp_path, store):
    store.chmod(0o644)  # which opening it to serve would change
    (tmp_path / "run.db.lock").unlink(missing_ok=True)
    before = contents(tmp_path)
    findings = found(store)
    assert not_ok(findings) == {}
    assert "at version 0, undamaged" in findings["store"][1]
    assert contents(tmp_path) == before
    assert store.stat().st_mode & 0o777 == 0o644


def test_a_store_that_a_server_has_open_is_told(store):
    with closing(open_store(store)) as opened:
        assert opened.claim()
        assert "A server has" in not_ok(found(store))["store"][1]
    assert not_ok(found(store)) == {}


def test_a_damaged_model_is_found(store):
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE models SET body = zeroblob(length(body))")
        connection.commit()
    status, told = not_ok(found(store))["store"]
    assert status == "failed"
    assert "The stored model 0 is damaged" in told


def test_an_old_schema_is_told_with_the_command(store):
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE store_schema SET number = 4")
        connection.commit()
    findings = not_ok(found(store))
    assert findings["store"][0] == "failed"
    assert f"anarchic store upgrade {store}" in findings["store"][1]
    assert "run" not in findings


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("none/run.db", "There is no directory"),
        ("model.safetensors", "damaged or not a database"),
        ("pipe.db", "no ordinary file"),
        ("empty.db", "is empty, and a store never is"),
        ("postgresql://nobody@127.0.0.1:9/none", "cannot be read or written now"),
    ],
)
def test_a_store_that_cannot_be_used_is_told(tmp_path, model, where, told):
    place = where if "://" in where else tmp_path / where
    os.mkfifo(tmp_path / "pipe.db")  # to open it would wait for ever
    (tmp_path / "empty.db").touch()
    findings = found(place, init=model)
    assert findings["store"][0] == "failed"
    assert told in findings["store"][1]


def test_what_this_user_may_not_write_is_told(store, monkeypatch):
    monkeypatch.setattr("anarchic.server.check.os.access", lambda place, _: place == store)
    assert f"{store.parent} cannot be written to" in not_ok(found(store))["store"][1]


@pytest.mark.parametrize(("free", "status"), [(100, "failed"), (3_000, "warning"), (10**6, "ok")])
def test_a_full_disk_is_told(store, monkeypatch, free, status):
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr("anarchic.server.check.shutil.disk_usage", lambda _: usage)
    assert found(store)["disk"][0] == status


def test_a_machine_with_too_little_memory_is_told(store, monkeypatch):
    assert "takes at most 931 MB" in found(store)["memory"][1]
    monkeypatch.setattr("anarchic.server.memory.os.sysconf", lambda name: 1 << 14)
    assert "this machine has 268 MB" in not_ok(found(store))["memory"][1]


def test_settings_that_do_not_fit_the_run_are_told(store, tmp_path):
    assert "m is 2 there and 7 here" in not_ok(found(store, rules={"m": 7}))["run"][1]
    told = not_ok(found(tmp_path / "new.db"))["run"]
    assert told == (
        "failed",
        "The store holds no run yet: give a first model with --init.",
    )
    strangers = not_ok(found(tmp_path / "new.db", rules={"rule": "afa-cs"}))["run"][1]
    assert "--cap" in strangers


def test_tokens_that_let_nobody_push_are_told(store):
    closed = ServerSettings()
    assert "Nobody may push" in not_ok(found(store, settings=closed))["tokens"][1]
    with closing(open_store(store)) as opened:
        put_account(opened, new_token("ann", expires_s=time.time() - 1)[1])
        put_account(opened, new_token("bob", rights="pull")[1])
    told = not_ok(found(store, settings=closed))["tokens"]
    assert told[0] == "failed"
    assert "None of 2 tokens lets a worker push" in told[1]
    with closing(open_store(store)) as opened:
        put_account(opened, new_token("cid")[1])
    assert found(store, settings=closed)["tokens"] == (
        "ok",
        "1 of 3 tokens let a worker push.",
    )


@pytest.mark.slow
def test_a_judge_and_callbacks_must_load(store):
    findings = not_ok(found(store, evaluate="tests.server.no_such:judge", callback="nope"))
    assert findings["evaluate"][0] == findings["callback"][0] == "failed"
    assert "There is no module" in findings["evaluate"][1]
    assert (
        not_ok(found(store, evaluate="tests.server.evaluations:slow", callback="keep-best")) == {}
    )


@pytest.mark.parametrize(("option", "asked"), [("keep_best", "ww"), ("target", "ww=1")])
def test_a_metric_that_the_judge_does_not_return_is_told(store, tmp_path, model, option, asked):
    run = {"evaluate": "tests.server.evaluations:named", option: asked}
    for place, given in ((store, run), (tmp_path / "new.db", {**run, "init": model})):
        status, told = found(place, **given)["evaluate"]
        assert status == "failed"
        assert "has no effect: the evaluation has w. Name one of these" in told
        right = {**given, option: given[option].replace("ww", "w")}
        status, told = found(place, **right)["evaluate"]
        assert (status, "says w 0 after" in told) == ("ok", True)


def test_the_state_of_a_run_and_what_was_set_are_told(store):
    steer(store, "set", {"m": 7})
    assert "rule afa-cd, m=7" in found(store)["run"][1]
    steer(store, "pause")
    status, told = found(store)["run"]
    assert (status, "It is paused: 'anarchic resume" in told) == ("warning", True)
    steer(store, "end")
    status, told = found(store)["run"]
    assert (status, "The run has ended (command 3" in told) == ("failed", True)


def test_names_that_a_certificate_is_not_made_for_are_told(store, tmp_path):
    trustme = pytest.importorskip("trustme")
    own = trustme.CA().issue_cert("fl.example.org", "*.wide.org", "10.0.0.5")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    files = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    assert alternative_names(tmp_path / "cert.pem") == ["fl.example.org", "*.wide.org", "10.0.0.5"]
    port = free_port()
    for names, wrong in {
        "fl.example.org": None,
        "FL.example.org,a.wide.org": None,
        "10.0.0.5": None,
        "a.b.wide.org": "a.b.wide.org",
        "fl.example.com,fl.example.org": "fl.example.com",
    }.items():
        address = Address(port=port, host_name=names, **files)
        status, told = found(store, address=address)["tls"]
        assert status == ("ok" if wrong is None else "warning")
        assert wrong is None or f"not for {wrong}: workers" in told
    address = Address(host="0.0.0.0", port=port, **files)
    assert found(store, address=address)["tls"][0] == "ok"


def add_update(store, received_s):
    store.append([NewUpdate("ann", "1", b"x" * 32, 0, 1, 0.1, 0, 1.0, received_s, b"body")])


def test_an_update_from_the_future_means_a_wrong_clock(store):
    with closing(open_store(store)) as opened:
        add_update(opened, time.time() + 3_630)  # half a minute later it is still 3,6..
    status, told = not_ok(found(store))["clock"]
    assert status == "warning"
    assert "the newest update came 3,6" in told


def test_a_port_that_is_taken_and_a_name_that_leads_nowhere_are_told(store):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address(port=other.getsockname()[1])
        assert "Address already in use" in not_ok(found(store, address=taken))["address"][1]
    named = Address(port=free_port(), host_name="no-such-name.invalid")
    assert not_ok(found(store, address=named))["address"][0] == "warning"


def test_certificates_are_looked_at(store, tmp_path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()

    def files(name, **dates):
        own = authority.issue_cert("localhost", **dates)
        own.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        own.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        return {"tls_cert": tmp_path / f"{name}.pem", "tls_key": tmp_path / f"{name}.key"}

    now, port = datetime.now(UTC), free_port()
    good, soon = files("good"), files("soon", not_after=now + timedelta(days=3))
    past = files("past", not_before=now - timedelta(9), not_after=now - timedelta(days=1))
    expected = {
        "fits its key, valid until": ("ok", Address(port=port, **good)),
        "expires in 2 days": ("warning", Address(port=port, **soon)),
        "expired on": ("failed", Address(port=port, **past)),
        "TLS cannot be set up": (
            "failed",
            Address(port=port, tls_cert=good["tls_cert"], tls_key=past["tls_key"]),
        ),
        "travel readable": ("warning", Address(port=port, host="0.0.0.0", insecure=True)),
    }
    for told, (status, address) in expected.items():
        assert found(store, address=address)["tls"][0] == status
        assert told in found(store, address=address)["tls"][1]


def test_every_run_of_a_directory_is_looked_at(tmp_path):
    assert "There is no run yet" in not_ok(found(tmp_path))["runs"][1]
    for name in ("heart", "lung"):
        with closing(open_store(tmp_path / f"{name}.db")) as opened:
            begin(opened, RuleSettings(m=2), LAYOUT, np.zeros(2, np.float32))
    findings = found(tmp_path)
    assert not_ok(findings) == {}
    assert findings["runs"][1] == "There are heart, lung."
    named = ("store", "run", "tokens", "disk", "clock")
    assert list(findings)[-10:] == [f"{run}: {name}" for run in ("heart", "lung") for name in named]
    with closing(open_store(tmp_path / "heart.db")) as opened:
        put_account(opened, new_token("ann")[1])
    closed = not_ok(found(tmp_path, settings=ServerSettings()))
    assert list(closed) == ["lung: tokens"]
    assert closed["lung: tokens"][0] == "failed"
    assert "Nobody may push" in closed["lung: tokens"][1]
    steer(tmp_path / "lung.db", "end")
    ended = not_ok(found(tmp_path, settings=ServerSettings()))
    assert {name: status for name, (status, _) in ended.items()} == {"lung: run": "warning"}
    with closing(open_store(tmp_path / "heart.db")) as opened:
        add_update(opened, time.time() + 3_630)  # half a minute later it is still 3,6..
    assert "came 3,6" in not_ok(found(tmp_path))["heart: clock"][1]
    with closing(sqlite3.connect(tmp_path / "lung.db")) as connection:
        connection.execute("UPDATE models SET body = zeroblob(length(body))")
        connection.commit()
    assert list(not_ok(found(tmp_path))) == ["heart: clock", "lung: store", "lung: run"]
    (tmp_path / "lung.db").unlink()
    (tmp_path / "lung.db").symlink_to("nowhere")
    assert not_ok(found(tmp_path))["lung: store"] == (
        "failed", f"There is no store {tmp_path / 'lung.db'}: its run is not served."
    )  # fmt: skip


UNFINISHED = """
import os, sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("PRAGMA journal_mode = PERSIST")
store.execute("PRAGMA cache_size = 1")
store.execute("BEGIN IMMEDIATE")
for number in range(100):
    store.execute("INSERT INTO activity VALUES (?, ?)", (f"w{number}", "x" * 50_000))
os._exit(9)
"""


def test_a_store_that_a_crash_left_unfinished_is_told_and_left_as_it_is(store, tmp_path):
    subprocess.run([sys.executable, "-c", UNFINISHED, str(store)], check=False)
    before = contents(tmp_path)
    status, told = not_ok(found(store))["store"]
    assert status == "warning"
    assert "A server repairs it when it starts" in told
    assert contents(tmp_path) == before
    open_store(store).close()
    assert not_ok(found(store)) == {}


def test_a_rule_that_waits_for_workers_says_so(tmp_path, model):
    place, closed = tmp_path / "run.db", ServerSettings()

    def said(**more):
        return found(place, settings=closed, **more)["run"]

    status, told = said(rules={"rule": "malenia"}, init=model)
    assert status == "warning"
    assert "also one that never comes again: bound that with --expire-after N" in told
    assert said(rules={"rule": "ringleader", "expire_after": 50}, init=model)[0] == "ok"
    with closing(open_store(place)) as opened:
        begin(opened, RuleSettings(rule="malenia"), LAYOUT, np.zeros(2, np.float32))
    assert "set STORE expire_after=N" in said()[1]
    steer(place, "set", {"expire_after": 50})
    assert said()[0] == "ok"
