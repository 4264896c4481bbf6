import os
from urllib.parse import quote

import pytest

from anarchic import Layout, Prox
from anarchic.errors import ConfigError
from anarchic.worker import (
    Always,
    ConstantSteps,
    Every,
    Exponential,
    FunctionTask,
    Hours,
    Spool,
    TimeBudget,
    UniformSteps,
    When,
    WorkSettings,
    run,
)
from anarchic.worker.settings import address_of, default_spool, parse_policy, parse_steps
from anarchic.worker.spool import OutgoingUpdate

task = FunctionTask(Layout.of({"x": ((2,), "F32")}), lambda x: (x - 1, 0.5, 1))
TASK = f"{__name__}:task"


def test_a_worker_runs_from_its_settings(listening, tmp_path):
    settings = WorkSettings(
        server=listening.url, task=TASK, name="ann", spool=tmp_path, local_steps="2", updates=3
    )
    summary = run(settings)
    assert (summary.accepted, summary.local_steps, summary.version) == (3, 6, 3)
    assert [worker for worker, _ in listening.scripted.taken] == ["ann"] * 3


def test_a_worker_without_a_spool_gets_one_by_its_name(listening, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("ANARCHIC_TOKEN", "bob.secret")
    scripted = listening.scripted
    scripted.push = lambda body: scripted.answer(202, "accepted")
    run(WorkSettings(server=listening.url, task=TASK, updates=1))
    assert default_spool(listening.url, "bob").is_dir()
    assert scripted.authorizations[-1] == "Bearer bob.secret"


def test_a_worker_needs_a_name_or_a_token(monkeypatch):
    monkeypatch.delenv("ANARCHIC_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="Who is this"):
        WorkSettings(server="http://server", task=TASK).token()


def test_a_password_in_the_proxy_is_not_shown():
    assert "secret" not in repr(WorkSettings(server="s", task="t", proxy="http://me:secret@proxy"))


def test_policies_are_read():
    assert parse_policy("always") == Always()
    assert parse_policy("every:2.5") == Every(2.5)
    assert parse_policy("hours:22-6.5") == Hours(22, 6.5)
    assert parse_policy("random:30") == Exponential(30)
    assert parse_policy("when:os:getpid") == When(os.getpid)


def test_steps_are_read():
    assert parse_steps(None, None) == ConstantSteps(10)
    assert parse_steps("3", None) == ConstantSteps(3)
    assert parse_steps("3-9", None) == UniformSteps(3, 9)
    assert parse_steps(None, 5.0) == TimeBudget(5)
    with pytest.raises(ConfigError, match="a range such as"):
        parse_steps("many", None)


def test_rules_are_read():
    settings = WorkSettings(server="s", task="t", local_rule="prox", local_options={"mu": 0.5})
    assert settings.plan().local_rule == Prox(0.5)


def test_a_spool_under_the_address_as_it_was_written_is_taken_over(
    listening, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    address = f"{listening.url}/"
    earlier = tmp_path / "anarchic" / "spool" / quote(address, safe="") / "ann"
    spool = Spool(earlier)
    spool.put(OutgoingUpdate("a", "another run", 0, b"body"))
    spool.close()
    summary = run(WorkSettings(server=address, task=TASK, name="ann", updates=1))
    assert summary.resent == {"other_run": 1}
    assert default_spool(listening.url, "ann").is_dir()
    assert not earlier.exists()


def test_each_worker_at_each_server_has_a_spool(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = {default_spool(url, who) for url in ("http://a", "http://a:1") for who in ("x", "..")}
    assert len(places) == 4
    assert all(tmp_path in place.resolve().parents for place in places)
    assert len({place.resolve() for place in places}) == 4


def test_each_run_of_a_server_has_a_spool(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = set()
    for name in (None, "one", "two"):
        given = WorkSettings(server="http://a/", run=name, task="t", name="ann")
        places.add(default_spool(address_of(given), "ann"))
    assert len(places) == 3
