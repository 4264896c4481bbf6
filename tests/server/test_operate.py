"""Commands of operators: what they do to a run, and that a replay agrees whatever was done."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import update

from anarchic import wire
from anarchic.cli.status import text_of
from anarchic.errors import ConfigError, Deposed, StoreCorrupt, StoreFull, StoreUnavailable
from anarchic.server import operate, rollbacks
from anarchic.server import tables as t
from anarchic.server.accounts import new_token, put_account
from anarchic.server.aggregate import FOLLOW_S, STEER_S
from anarchic.server.commands import Command, commands, is_withdrawn, issue, withdrawn
from anarchic.server.operate import check_command, steer
from anarchic.server.overview import overview
from anarchic.server.refusals import Refusal
from anarchic.server.replay import replay
from anarchic.server.runs import check_same, stored_rules
from anarchic.server.service import Service
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.store import Store, open_store
from tests.server.make import begun, body

RULES = {
    "afa-cd": {"rule": "afa-cd", "m": 3},
    "afa-cs": {"rule": "afa-cs", "m": 3, "guard": 0.0},
    "momentum": {"rule": "afa-cd", "m": 3, "server_opt": "momentum"},
    "adam": {"rule": "afa-cs", "m": 2, "server_opt": "adam"},
    "scaffold": {"rule": "afa-cd", "m": 2, "local_rule": "scaffold", "workers": 4},
    "mifa": {"rule": "mifa", "m": 2, "rule_options": {"population": 3}, "cap": 3},
    "area": {"rule": "area", "m": 2, "cap": 4, "rule_options": {"history": 3}},
}


def silent(event, **facts):
    """A log."""


class Died(BaseException):
    """Where a process is killed."""


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return 1e9 + self.now


class World:
    """A run and the process that serves it, which takes a step when it is told to."""

    def __init__(self, place, rules, **store):
        self.place, self.clock, self.store_settings = (
            place,
            Clock(),
            {"keep_payloads": True, **store},
        )
        with closing(open_store(place, **self.store_settings)) as store:
            begun(store, **rules)
        self.accepted = {}  # id -> worker
        self.sent, self.refused = 0, []
        self.start()

    def start(self):
        self.store = open_store(self.place, **self.store_settings)
        limits = Limits(per_worker=100)
        settings = ServerSettings(limits=limits, step_after_s=50.0)
        self.service = Service(self.store, settings, silent, clock=self.clock)
        self.turns(2)
        assert self.service.published.has_one

    def kill(self):
        self.store.close()
        self.start()

    def turns(self, count=1):
        """Let the aggregator go on; it looks for commands with every turn."""
        for _ in range(count):
            self.clock.now += max(STEER_S, FOLLOW_S)
            self.service.aggregator.turn(0.0)

    @property
    def version(self):
        return self.store.run().version

    def push(self, worker, *, base=None, seed=None, **others):
        """Push an update; whether it was accepted."""
        self.sent += 1
        id, base = str(self.sent), self.version if base is None else base
        made = body(worker, id, base, seed=self.sent if seed is None else seed, **others)
        try:
            self.service.steering.check_open()
            self.service.steering.check_base(base)
            new, decoded = self.service.check.check(bytearray(made), None)
        except Refusal as refusal:
            self.refused.append(refusal.code)
            return False
        receipt = Future()
        self.service.collector.queue(new, decoded, receipt)
        self.service.collector.write_next(0.0)
        assert receipt.result().outcome == "accepted"
        self.accepted[id] = worker
        return True

    def train(self, steps, workers=("ann", "bob", "cyn"), **others):
        for _ in range(steps):
            for worker in workers:
                self.push(worker, **others)
                self.turns()
        self.turns(2)

    def give(self, kind, **arguments):
        checked = check_command(self.store, kind, arguments)
        return issue(self.store, kind, checked, by="op", now_s=self.clock.time()).number

    def command(self, kind, **arguments):
        number = self.give(kind, **arguments)
        self.turns(2)
        return operate.settled(self.store, number)

    def params(self, version=None):
        found = self.store.model(self.version if version is None else version)
        return wire.decode_snapshot(found)[1].params

    def check(self):
        """Nothing is lost, nothing counts twice, and folding again gives the same bytes."""
        rows = list(self.store.trace())
        assert sorted(row.id for row in rows) == sorted(self.accepted)
        settled = commands(self.store)
        gone = withdrawn(settled)
        without = {c.arguments.get("without") for c in settled}
        for row in rows:
            if row.version == 0:
                assert is_withdrawn(gone, row.base_version) or row.worker in without
            before = [each for each in gone if row.version and row.version > each[1]]
            assert not is_withdrawn(before, row.base_version)
        assert replay(self.store).equal
        assert self.service.aggregator.failure is None
        return rows


@contextmanager
def worlds(place):
    made = []

    def make(rules=None, **store):
        made.append(World(place, rules or {"m": 3}, **store))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


@pytest.fixture
def world(place):
    """Makes a run in SQLite, and in PostgreSQL."""
    with worlds(place) as make:
        yield make


@pytest.fixture
def in_file(tmp_path):
    """Makes a run in SQLite."""
    with worlds(str(tmp_path / "run.db")) as make:
        yield make


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


@pytest.mark.parametrize("name", RULES)
def test_a_rollback_makes_an_old_version_the_newest(in_file, name):
    run = in_file(RULES[name])
    run.train(6)
    before, at = run.params(2), run.version
    run.push("ann", base=at)
    found = run.command("rollback", to=2)
    assert found.outcome == "applied", found.reason
    assert f"versions 3 to {at} are withdrawn" in found.reason
    assert "1 waiting update was set aside" in found.reason
    assert run.version == at + 1
    assert run.params().tobytes() == before.tobytes()
    assert run.service.published.newest.version == at + 1
    assert not run.push("bob", base=at)
    assert run.refused == ["withdrawn"]
    assert run.push("bob", base=2)
    run.train(3)
    run.check()
    run.kill()
    run.train(2)
    run.check()


@pytest.mark.parametrize(
    "rules",
    [
        {"rule": "fedasync"},
        {"rule": "aced", "cap": 4, "rule_options": {"limit": 2}},
        {"rule": "rennala", "rule_options": {"batch": 2}},
        {"rule": "malenia", "rule_options": {"batch": 2}},
        {"rule": "ringleader", "rule_options": {"population": 3}},
    ],
    ids=lambda rules: rules["rule"],
)
def test_rules_that_step_with_every_update_go_on_after_kills_and_rollbacks(in_file, rules):
    run = in_file(rules)
    run.train(2)
    run.kill()
    run.train(1)
    before = run.params(4)
    assert run.command("rollback", to=4).outcome == "applied"
    assert run.params().tobytes() == before.tobytes()
    assert run.push("bob", base=4)
    run.train(3)
    assert run.params().tobytes() != before.tobytes()
    run.kill()
    assert run.command("rollback", without="bob", withdrawn=True).outcome == "applied"
    run.train(2)
    run.check()


def test_fedasync_goes_on_after_rollbacks_with_the_versions_that_workers_hold(in_file):
    run = in_file({"rule": "fedasync", "rule_options": {"history": 3}})
    run.train(2)
    assert len(run.store.standing().rows) == 3  # and not a row for every version
    before = run.params(2)
    assert run.command("rollback", to=2).outcome == "applied"
    assert run.params().tobytes() == before.tobytes()
    assert run.push("bob", base=2)
    run.train(3)
    run.kill()
    assert run.command("rollback", without="bob", withdrawn=True).outcome == "applied"
    run.train(5)
    assert len(run.store.standing().rows) == 3
    run.check()


@pytest.mark.parametrize("name", RULES)
def test_a_rollback_without_a_worker_is_the_run_that_never_heard_of_it(in_file, name, tmp_path):
    run = in_file(RULES[name])
    run.train(2)
    for _ in range(3):
        run.push("ann")
        run.push("eve", local_lr=0.4)
        run.push("bob")
        run.turns(6)
    run.push("eve")
    at = run.version
    found = run.command("rollback", without="eve")
    assert found.outcome == "applied", found.reason
    assert run.version == at + 1
    other = World(str(tmp_path / "other.db"), RULES[name])
    rows = [row for row in run.store.trace() if row.version and row.worker != "eve"]
    by_version = {}
    for row in rows:
        by_version.setdefault(row.version, []).append(row)
    rule, layout = other.service.steering.rule, other.service.layout
    state = rule.init(other.params(0))
    for version, made in sorted(by_version.items()):
        for row in made:
            decoded = wire.decode_update(
                run.store.body(row.seq), layout, extras=frozenset(state.extras), worker=row.worker
            )
            state = rule.receive(state, decoded.update)
        state = rule.flush(state)
        assert state.version == version  # none of them was made of eve's alone
    assert run.params().tobytes() == state.params.tobytes()
    other.store.close()
    run.train(3)
    assert "eve" not in run.store.standing().rows
    run.check()
    run.kill()
    run.command("rollback", without="bob", to=4, withdrawn=True)
    run.train(2)
    run.check()


def test_the_cost_of_many_rollbacks_grows_with_what_is_folded_again_alone(in_file, monkeypatch):
    """Each version at most once, whatever was withdrawn before: counted, not timed."""
    run = in_file({"m": 1})
    run.train(1, [f"w{number}" for number in range(6)] + ["ann", "bob"])
    seen, read = [], Store.body
    monkeypatch.setattr(Store, "body", lambda store, seq: seen.append(seq) or read(store, seq))
    counts = []
    for number in range(6):
        number_of = run.give("rollback", without=f"w{number}")
        seen.clear()
        rollbacks.prepare(run.store, run.store.run(), commands(run.store)[-1].arguments)
        counts.append(len(seen))
        run.turns(2)
        assert operate.settled(run.store, number_of).outcome == "applied"
    # 8 updates, and one worker fewer each time. Each rollback adds a version without any update.
    assert counts == [7, 6, 5, 4, 3, 2]
    seen.clear()
    assert replay(run.store).equal
    assert len(seen) == 2  # ann's and bob's: nothing else counts in the newest version
    run.train(1, ("ann", "cyn"))
    run.command("rollback", to=9, withdrawn=True)
    run.train(1, ("dan",))
    seen.clear()
    run.check()
    assert len(seen) == 7 + 1  # those of version 9, and dan's


def test_versions_of_one_worker_alone_are_passed_over(in_file):
    run = in_file({"m": 2})
    run.train(2, ("ann", "bob"))
    run.train(2, ("eve", "eve"))
    run.train(1, ("ann", "bob"))
    assert run.version == 5
    run.command("rollback", without="eve")
    assert run.version == 6
    run.train(1, ("ann", "bob"))
    run.check()


def test_without_payloads_a_worker_cannot_be_taken_out(in_file):
    run = in_file(keep_payloads=False)
    run.train(3)
    with pytest.raises(ConfigError, match="--keep-payloads"):
        run.give("rollback", without="ann")
    run.store_settings["keep_payloads"] = True  # too late
    run.kill()
    run.train(1)
    with pytest.raises(ConfigError, match="--keep-payloads"):
        run.give("rollback", without="ann")
    assert run.command("rollback", to=1).outcome == "applied"


def test_a_version_that_is_gone_is_folded_again(in_file):
    run = in_file({"m": 1}, history=2)
    run.train(4)
    gone = next(version for version in range(12) if run.store.model(version) is None)
    assert run.command("rollback", to=gone).outcome == "applied"
    run.check()


def test_a_version_that_is_gone_for_good_is_refused_and_the_kept_ones_are_named(in_file):
    run = in_file({"m": 1}, history=2, keep_payloads=False)
    run.train(4)
    gone = next(version for version in range(12) if run.store.model(version) is None)
    with pytest.raises(ConfigError, match=r"no longer kept \(there are .*10 to 12\)"):
        run.give("rollback", to=gone)


def test_an_update_that_came_through_another_server_is_set_aside(world):
    """Its base was withdrawn while it was on its way; its worker's share must become free."""
    run = world({"m": 2})
    run.train(3, ("ann", "bob"))
    run.push("ann", base=3)
    new, decoded = run.service.check.check(bytearray(body("bob", "late", 3)), None)
    run.command("rollback", to=1)
    run.service.pending.reserve("bob")
    run.service.pending.accept([(new, decoded)])
    run.accepted["late"] = "bob"
    run.push("cyn", base=1)
    run.turns(6)
    assert run.service.pending.count == 1  # of cyn
    assert run.version == 4
    run.push("dan", base=4)
    run.turns(3)
    assert run.version == 5
    assert [row.version for row in run.check() if row.id == "late"] == [0]


def test_whoever_no_longer_leads_applies_nothing(world):
    run = world()
    run.train(1)
    number = run.give("rollback", to=0)
    epoch = run.store.run().epoch
    with closing(open_store(run.place)) as other:
        other._database.drop_lead()
        with other.writing() as connection:  # as another leader would
            connection.execute(update(t.run).values(epoch=epoch + 1))
    with pytest.raises(Deposed):
        operate.apply_waiting(run.store, epoch)
    assert operate.settled(run.store, number).outcome == "waiting"
    run.kill()
    run.turns(2)
    assert operate.settled(run.store, number).outcome == "applied"
    run.check()


def test_servers_that_share_a_run_follow_what_its_leader_applied(postgres):
    """And so does the next leader, whose knowledge of updates is as late as that of commands."""
    with worlds(postgres.new_place()) as make:
        run = make({"m": 2})
        run.train(3, ("ann", "bob"))
        with closing(open_store(run.place)) as store:
            limits = Limits(per_worker=100)
            other = Service(store, ServerSettings(limits=limits), silent, clock=run.clock)
            other.aggregator.turn(0.0)
            assert not other.aggregator.leads
            for kind, arguments in (
                ("set", {"m": 3}),
                ("rollback", {"to": 1}),
                ("rollback", {"without": "ann"}),
                ("pause", {}),
            ):
                run.give(kind, **arguments)
            run.turns(2)
            assert other.steering.condition == "running"  # it has not looked yet
            late = other.check.check(bytearray(body("bob", "late", 3)), None)
            other.pending.reserve("bob")
            other.pending.accept([late])  # accepted by a server that did not know
            run.accepted["late"] = "bob"
            run.clock.now += STEER_S
            other.aggregator.turn(0.0)
            assert (other.steering.condition, other.steering.rule.m) == ("paused", 3)
            assert other.published.newest.version == run.version == 5
            with pytest.raises(Refusal, match="withdrawn"):
                other.steering.check_base(3)
            run.store.close()  # killed
            run.clock.now += 2 * FOLLOW_S
            other.aggregator.turn(0.0)
            assert other.aggregator.leads
            steer(run.place, "resume", wait_s=0.0)
            for _ in range(8):
                run.clock.now += STEER_S
                other.aggregator.turn(0.0)
            assert other.steering.condition == "running"
            assert {row.id: row.version for row in store.trace()}["late"] == 0
            assert (replay(store).equal, other.pending.count) == (True, 0)


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


def test_a_withdrawn_version_is_refused_unless_it_is_meant(in_file):
    run = in_file({"m": 1})
    run.train(2)
    run.command("rollback", to=2)  # withdraws 3 to 6
    told = (
        r"Version 4 was withdrawn with versions 3 to 6 \(command 1, rollback to 2, by op\). "
        r"Name one that counts \(0 to 2, 7\), or say --withdrawn"
    )
    for arguments in ({"to": 4}, {"to": 4, "without": "ann"}):
        with pytest.raises(ConfigError, match=told):
            run.give("rollback", **arguments)
    lost = run.params(5)
    found = run.command("rollback", to=5, withdrawn=True)
    assert "Version 5 had been withdrawn by command 1, rollback to 2, by op." in found.reason
    assert run.params().tobytes() == lost.tobytes()
    run.train(1)
    run.check()


def test_the_status_knows_what_rollbacks_withdrew(world):
    run = world({"m": 1})
    run.train(2)  # versions 1 to 6: two of each of ann, bob and cyn
    for version in (2, 5):
        run.store.add_evaluation(version, {"accuracy": version / 10})
    found = overview(run.store)
    assert (found["updates"]["withdrawn"], found["evaluation"]["version"]) == (0, 5)
    run.command("rollback", without="bob")  # withdraws 2 to 6
    found = overview(run.store)
    assert (found["updates"]["folded"], found["updates"]["withdrawn"]) == (6, 2)  # bob's
    assert found["evaluation"] is None
    run.train(1, ("ann",))  # version 8
    run.command("rollback", to=1)
    found = overview(run.store)
    assert (found["updates"]["folded"], found["updates"]["withdrawn"]) == (7, 6)  # but the first
    lines = text_of(found, 9).splitlines()
    assert "7 folded, 0 clipped, 0 set aside, 6 withdrawn" in lines[4]
    assert lines[10] == "rollback   command 1 (without bob): versions 2 to 6 are withdrawn"
    assert lines[11] == "rollback   command 2 (to 1): versions 2 to 8 are withdrawn"


def test_a_worker_that_was_taken_out_has_nothing_left_to_take_out(world):
    run = world()
    run.train(2)
    assert "from 4 updates" in run.command("rollback", without="ann").reason
    with pytest.raises(ConfigError, match="No update of worker 'ann' counts in version 3"):
        run.give("rollback", without="ann")
    assert "from 2 updates" in run.command("rollback", without="bob").reason
    with pytest.raises(ConfigError, match=r"Worker 'an' has sent no update\. Did you mean 'ann'"):
        run.give("rollback", without="an")
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


# Random sequences of updates, commands and kills

ACTS = ["push"] * 20 + ["turn"] * 8 + ["kill", "late", "timer"] + ["die", "fail"] * 2
ACTS += ["pause", "resume", "resume", "set", "set", "to", "without", "revise"]
WORKERS = ("ann", "bob", "cyn", "eve")


def act(run, name, rng):
    version = run.version
    if name == "push":
        run.push(str(rng.choice(WORKERS)), base=int(rng.integers(max(0, version - 3), version + 1)))
    elif name == "turn":
        run.turns(int(rng.integers(1, 4)))
    elif name == "timer":
        run.clock.now += 60
        run.turns()
    elif name in ("pause", "resume"):
        run.give(name)
    elif name == "set":
        run.give("set", m=int(rng.integers(1, 5)), server_lr=float(rng.uniform(0.1, 2)))
    elif name == "revise":
        run.give("set", staleness_power=float(rng.uniform(0, 1)), clip=float(rng.uniform(0.1, 9)))
    elif name == "to" and version:
        run.give("rollback", to=int(rng.integers(0, version)), withdrawn=True)
    elif name == "without" and version:
        to = int(rng.integers(1, version + 1)) if rng.random() < 0.5 else None
        with suppress(ConfigError):  # the worker has no update yet
            run.give("rollback", without=str(rng.choice(WORKERS)), to=to, withdrawn=True)
    elif name == "late" and version:  # checked before a rollback, stored after it
        base = int(rng.integers(max(0, version - 3), version + 1))
        late_update(run, str(rng.choice(WORKERS)), base)
    elif name == "kill":
        run.kill()


def late_update(run, worker, base):
    run.sent += 1
    id = str(run.sent)
    new, decoded = run.service.check.check(bytearray(body(worker, id, base, seed=run.sent)), None)
    run.service.pending.reserve(worker)
    run.service.pending.accept([(new, decoded)])
    run.accepted[id] = worker


def interrupted(run, rng, error):
    """Turns during which the process dies, or the store fails, at a random transaction."""
    left, after = int(rng.integers(1, 4)), bool(rng.random() < 0.5)
    database = run.store._database._database  # behind the watch
    writing = database.writing

    @contextmanager
    def broken():
        nonlocal left
        left -= 1
        if left == 0 and not after:
            raise error
        with writing() as connection:
            yield connection
        if left == 0:
            raise error

    database.writing = broken
    try:
        run.turns(4)
    except Died:
        run.kill()
    finally:
        vars(database).pop("writing")


def whatever_is_done(run, rng):
    for name in rng.choice(ACTS, 60):
        if name in ("die", "fail"):
            act(run, str(rng.choice(["set", "to", "without", "push"])), rng)
            gone = StoreUnavailable("The disk is gone.")
            interrupted(run, rng, Died() if name == "die" else gone)
        else:
            act(run, str(name), rng)
    run.kill()
    run.turns(4)
    assert all(command.outcome != "waiting" for command in commands(run.store))
    run.check()
    run.give("end")
    run.turns(len(run.accepted) + 8)
    assert run.service.pending.count == 0
    assert all(row.version is not None for row in run.check())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(RULES)))
def test_whatever_is_done_nothing_is_lost_and_a_replay_agrees(in_file, seed):
    whatever_is_done(in_file([*RULES.values()][seed]), np.random.default_rng(seed))


@pytest.mark.slow
def test_whatever_is_done_nothing_is_lost_in_postgresql(postgres):
    with worlds(postgres.new_place()) as make:
        whatever_is_done(make(RULES["adam"]), np.random.default_rng(1))


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_whatever_is_done_a_hundred_times(in_file, seed):
    whatever_is_done(in_file([*RULES.values()][seed % len(RULES)]), np.random.default_rng(seed))


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
