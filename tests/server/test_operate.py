"""Commands of operators: pausing, ending and changing a run, and commands that fail."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import update

from anarchic import wire
from anarchic.errors import ConfigError, StoreCorrupt, StoreFull
from anarchic.server import operate, rollbacks
from anarchic.server import tables as t
from anarchic.server.accounts import new_token, put_account
from anarchic.server.commands import Command, commands, issue
from anarchic.server.operate import check_command, steer
from anarchic.server.runs import check_same, stored_rules
from anarchic.server.store import open_store
from tests.server.make import begun


def test_a_paused_run_takes_no_updates_and_no_step_until_it_is_resumed(world):
    run = world()
    run.push("ann")
    run.push("bob")
    run.push("cyn")
    found = run.command("pause")
    assert (found.outcome, found.version) == ("applied", 0)
    assert run.service.status()["state"] == "paused"
    assert not run.push("dan")
    assert run.refused == ["paused"]
    run.clock.now += 100  # nor does the timer step
    run.turns(5)
    assert run.version == 0
    run.kill()
    run.turns(5)
    assert (run.version, run.service.status()["state"]) == (0, "paused")
    run.command("resume")
    run.turns(4)
    assert run.version == 1
    assert run.push("dan")
    run.check()


def test_an_ended_run_folds_what_it_accepted_and_takes_no_more(world):
    run = world()
    run.train(1)
    run.push("ann")
    run.push("bob")
    found = run.command("end")
    run.turns(6)
    assert (found.outcome, found.version) == ("applied", 1)
    assert (run.version, run.service.pending.count) == (2, 0)
    assert not run.push("cyn")
    assert run.refused == ["run_ended"]
    for kind, arguments in {
        "resume": {}, "pause": {}, "end": {}, "set": {"m": 2}, "rollback": {"to": 0}
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=r"has ended \(command 1, after version 1\)"):
            run.give(kind, **arguments)
    assert all(row.version for row in run.check())


def test_settings_hold_from_a_version_on(world):
    run = world()
    run.train(2)
    run.push("ann")
    run.push("bob")
    run.turns(3)
    found = run.command("set", m="2", server_lr="0.5")
    assert found.reason == "m=2 (was 3), server_lr=0.5 (was 1.0)."
    assert found.version == 2
    run.turns(4)
    assert run.version == 3  # of the two that waited
    status = run.service.status()
    assert (status["m"], status["state"]) == (2, "running")
    snapshot = wire.decode_snapshot(run.store.model(3))[1]
    assert snapshot.terms.server_lr == 0.5
    run.kill()
    assert run.service.status()["m"] == 2
    run.train(2, ("ann", "bob"))
    assert run.version == 5
    assert stored_rules(run.store.run()).m == 3  # as it was begun
    run.check()


def test_a_run_of_mifa_goes_on_without_workers_that_were_revoked(in_file):
    """Heard before or not; and so does a replay, and the run that a rollback began afresh."""
    run = in_file({"rule": "mifa", "m": 1, "rule_options": {"population": 3}, "cap": 3})

    def revoke(worker):
        _, account = new_token(worker)
        put_account(run.store, replace(account, revoked=True))
        run.service.access.read()

    run.train(1, ("ann", "bob"))
    assert run.params().tobytes() == run.params(0).tobytes()  # cyn was not heard
    revoke("cyn")
    run.train(1, ("ann",))
    assert run.params().tobytes() != run.params(0).tobytes()
    revoke("bob")
    run.kill()
    before = run.params()
    run.train(1, ("ann",))
    assert run.params().tobytes() != before.tobytes()
    run.check()
    run.command("rollback", to=1)
    run.service.access.read()
    before = run.params()
    run.train(2, ("ann",))
    assert run.params().tobytes() != before.tobytes()
    run.kill()
    run.check()


def test_a_cap_can_be_set_and_lowered(in_file):
    run = in_file({"rule": "afa-cs", "m": 1, "guard": 0.0})
    run.train(1, ("ann", "bob", "cyn"))
    assert run.command("set", cap=2).reason == "cap=2 (was none)."
    run.train(1, ("dan",))
    assert {*run.store.standing().rows} == {"cyn", "dan"}
    run.check()


def test_a_server_starts_again_with_the_settings_of_before_or_of_now(in_file):
    run = in_file({"m": 3})
    run.command("set", m=2)
    stored = run.store.run()
    for m in (3, 2):
        check_same(run.store, stored, {"m": m}, None)
    with pytest.raises(ConfigError, match="m is 2 there and 4 here"):
        check_same(run.store, stored, {"m": 4}, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"server_rl": 1}, "no setting 'server_rl'. Did you mean 'server_lr'"),
        ({"rule": "afa-cs"}, "rule cannot be changed in a run"),
        ({"m": "0"}, "m >= 1"),
        ({"m": "2.5"}, "whole number, got '2.5'"),
        ({"server_lr": "-1"}, "positive, finite server_lr"),
        ({"server_lr": "nan"}, "positive, finite server_lr"),
        ({"guard": "0"}, "switched off"),
        ({"expire_after": "3"}, "expire_after"),
        ({"cap": "3"}, "no setting 'cap'"),
        ({"server_options": "3"}, "server_options cannot be changed in a run.*expire_after, cap"),
        ({}, "Nothing to set"),
    ],
)
def test_settings_that_cannot_hold_are_refused_before_they_are_written(tmp_path, given, told):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=3)
        with pytest.raises(ConfigError, match=told):
            check_command(store, "set", given)
        assert commands(store) == []


def test_a_command_that_fails_in_a_way_nobody_expected_does_not_stop_the_run(in_file, monkeypatch):
    run = in_file()
    run.train(2)
    monkeypatch.setattr(rollbacks, "refold", lambda *_, **__: 1 / 0)
    found = run.command("rollback", without="ann")
    assert (found.outcome, "ZeroDivisionError" in found.reason) == ("refused", True)
    run.train(1)
    assert run.version == 3
    run.check()


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, StoreCorrupt, MemoryError])
@pytest.mark.parametrize("part", ["encode_state", "refold", "_waiting_on"])
def test_a_command_that_cannot_be_applied_is_refused_whatever_it_raises(
    in_file, monkeypatch, error, part
):
    """Also after the next epoch has begun: it used to be tried again for ever."""
    run = in_file()
    run.train(2)

    def fails(*_, **__):
        raise error("No \ud800 and no \0.")

    with monkeypatch.context() as patch:
        patch.setattr(rollbacks, part, fails)
        found = run.command("rollback", without="ann")
        assert found.outcome == "refused"
        assert "No " in found.reason
        run.train(1)
        assert run.version == 3
    assert run.command("set", m=2).outcome == "applied"
    run.check()


def test_commands_that_nobody_can_apply_are_refused_one_by_one(in_file):
    """As another version of anarchic, or a hand in the database, may have written them."""
    run = in_file()
    run.train(2)
    written = {
        "explode": {},
        "rollback": {},
        "set": {"m": "x", "sharpness": 3},
        "pause": {"reason": 5},
    }
    numbers = [issue(run.store, k, a, by="op", now_s=1.0).number for k, a in written.items()]
    numbers.append(issue(run.store, "rollback", {"to": 99}, by="op", now_s=1.0).number)
    last = run.give("set", m=2)
    run.turns(2)
    for number in numbers:
        found = operate.settled(run.store, number)
        assert (found.outcome, bool(found.reason)) == ("refused", True)
    assert operate.settled(run.store, last).outcome == "applied"
    run.train(1, ("ann", "bob"))
    assert run.version == 3
    run.check()


def test_a_failure_of_the_store_that_may_pass_leaves_the_command_waiting(in_file, monkeypatch):
    run = in_file()
    run.train(2)
    with monkeypatch.context() as patch:
        patch.setattr(operate, "publish", lambda *_: (_ for _ in ()).throw(StoreFull("Full.")))
        assert run.command("rollback", to=1).outcome == "waiting"
    run.turns(4)
    assert run.version == 3
    run.check()


def test_where_nobody_leads_a_command_is_applied_at_once(place):
    with closing(open_store(place)) as store:
        begun(store, m=3)
    found = steer(place, "end")
    assert (found.outcome, found.version) == ("applied", 0)
    with closing(open_store(place)) as store:
        assert [c.kind for c in commands(store)] == ["end"]


def test_a_command_that_was_changed_in_the_store_is_noticed(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=3)
        issue(store, "set", {"m": 2}, by="op", now_s=1.0)
        with store.writing() as connection:
            connection.execute(update(t.commands).values(arguments='{"m": 9}'))
        with pytest.raises(StoreCorrupt, match="command"):
            commands(store)


@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_text_that_a_database_cannot_hold_is_refused_before_it_is_written(tmp_path, text):
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    with closing(store):
        begun(store)
        with pytest.raises(ConfigError, match="is a text"):
            check_command(store, "pause", {"reason": text})
        with pytest.raises(ConfigError, match="without a worker"):
            check_command(store, "rollback", {"without": text})


def test_an_infinite_guard_is_told_as_a_text():
    told = Command(1, "set", {"guard": float("inf"), "m": 4}, "ann", 0.0).told()
    assert told["arguments"] == {"guard": "inf", "m": 4}
