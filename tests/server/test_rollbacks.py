"""Rollbacks: to an old version, and without a worker; a replay agrees."""

from __future__ import annotations

from contextlib import closing

import pytest
from sqlalchemy import update

from anarchic import wire
from anarchic.cli.status import text_of
from anarchic.errors import ConfigError, Deposed
from anarchic.server import operate, rollbacks
from anarchic.server import tables as t
from anarchic.server.aggregate import FOLLOW_S, STEER_S
from anarchic.server.commands import commands
from anarchic.server.operate import steer
from anarchic.server.overview import overview
from anarchic.server.refusals import Refusal
from anarchic.server.replay import replay
from anarchic.server.service import Service
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.store import Store, open_store
from tests.server.make import body
from tests.server.operated import RULES, World, silent, worlds

SLOW = pytest.mark.slow
QUICK = {"afa-cd", "adam", "scaffold", "area"}  # of a family that takes many seconds
each_rule = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else SLOW) for name in RULES]
)


@each_rule
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
        pytest.param({"rule": "malenia", "rule_options": {"batch": 2}}, marks=SLOW),
        pytest.param({"rule": "ringleader", "rule_options": {"population": 3}}, marks=SLOW),
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


@each_rule
@pytest.mark.slow
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
