"""A version that is not finite is never published: the step is undone, and the run goes on."""

from __future__ import annotations

import asyncio
import warnings
from concurrent.futures import Future
from contextlib import closing

import numpy as np
import pytest

from anarchic import wire
from anarchic.errors import Diverged, StoreUnavailable
from anarchic.server.aggregate import DIVERGED_S
from anarchic.server.records import SET_ASIDE
from anarchic.server.replay import replay, timetable_of
from anarchic.server.service import Service
from anarchic.server.set_aside import MOST_BLAMED
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.store import Store, open_store
from tests.server.live import newest_snapshot, serving, until
from tests.server.make import DIM, begun, body
from tests.server.test_turns import Clock

# A server's rate with which a direction of 1e-6 gives numbers of 1e31, one of 100 infinity.
RATE = 1e38
SHORT, LONG = np.full(DIM, 1e-6, np.float32), np.full(DIM, 1e2, np.float32)


def sent(worker, id="1", direction=SHORT, **others):
    return body(worker, id, direction=direction, **others)


@pytest.fixture
def run(tmp_path):
    """(service, log lines, clock) of a run with m = 2 that is driven by hand; ``go`` drives it."""
    clock, told = Clock(), []
    with closing(open_store(tmp_path / "run.db", keep_payloads=True)) as store:
        begun(store, m=2, server_lr=RATE, guard=0)  # which would clip the long ones
        yield serve(store, clock, told), told, clock, store


def serve(store, clock, told):
    settings = ServerSettings(open_enrolment=True, limits=Limits(per_worker=9, burst=99))
    service = Service(
        store, settings, lambda event, **facts: told.append((event, facts)), clock=clock
    )
    service.access.read()
    service.aggregator.turn(0.0)
    assert service.aggregator.leads
    return service


def push(service, *bodies):
    for each in bodies:
        service.collector.queue(*service.check.check(bytearray(each), None), Future())
    service.collector.write_next(0.0)
    for _ in range(20):
        service.aggregator.turn(0.0)


def trace(store):
    return [(row.worker, row.order, row.version) for row in store.trace()]


@pytest.mark.tried(
    "an update with which a step overflows",
    before="infinity was published, /healthz said 200, a restarted server made no more versions",
    now="the step is undone, the longest updates are set aside and named, the others count",
)
@pytest.mark.parametrize("rule", ["afa-cd", "afa-cs"])
def test_the_run_goes_on_without_the_update_that_overflows(tmp_path, rule):
    path = tmp_path / "run.db"

    async def scenario():
        rules = {"rule": rule, "m": 2, "server_lr": RATE} | ({"cap": 9} if rule == "afa-cs" else {})
        async with serving(path, rules=rules) as (service, client):
            for each in (sent("ann"), sent("eve", direction=LONG)):
                assert (await client.post("/v1/updates", content=each)).status_code == 202
            await until(lambda: service.metrics.counts["set_aside"] == 1)
            assert (await client.get("/healthz")).status_code == 503
            assert service.published.newest.version == 0
            assert (await client.get("/v1/status")).json()["updates"]["set_aside"] == 1
            again = await client.post("/v1/updates", content=sent("eve", direction=LONG))
            assert again.json()["status"] == "duplicate"
            await client.post("/v1/updates", content=sent("cid"))
            await until(lambda: service.published.newest.version == 1)
            assert (await client.get("/healthz")).status_code == 200
            assert np.isfinite(newest_snapshot(service).params).all()
        async with serving(path) as (service, client):  # a restart folds it no more than before
            for worker in ("ann", "cid"):
                await client.post("/v1/updates", content=sent(worker, "2"))
            await until(lambda: service.published.newest.version == 2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(scenario())
    with closing(open_store(path)) as store:
        assert trace(store) == [
            ("eve", 0, SET_ASIDE),
            ("ann", 1, 1),
            ("cid", 2, 1),
            ("ann", 3, 2),
            ("cid", 4, 2),
        ]
        assert replay(store).equal
        assert len(timetable_of(store).worker) == 4


def test_the_log_names_what_was_set_aside(run):
    service, told, _, _ = run
    push(service, sent("ann", "a7"), sent("eve", "e1", LONG), sent("eve", "e2"))
    [facts] = [facts for event, facts in told if event == "set_aside"]
    assert [(u["worker"], u["id"]) for u in facts["updates"]] == [("eve", "e1")]
    assert facts["updates"][0]["length"] == pytest.approx(0.1 * 100 * DIM**0.5)
    assert (facts["version"], facts["count"]) == (0, 1)
    assert "params" in facts["reason"]


def test_an_attack_in_every_round_stops_no_round(run):
    service, _, _, store = run
    for number in range(5):
        long = sent("eve", f"e{number}", LONG)
        push(service, sent("ann", str(number)), long, sent("cid", str(number)))
        assert service.published.newest.version == number + 1
    assert service.metrics.counts == service.metrics.counts | {"set_aside": 5, "folded": 10}
    assert [worker for worker, _, version in trace(store) if version == SET_ASIDE] == ["eve"] * 5
    assert service.pending.count == 0
    assert replay(store).equal


def test_steps_that_were_not_published_yet_are_undone_with_it(run):
    """Several steps at once: only the longest update is set aside, the rest counts."""
    service, _, _, store = run
    push(service, sent("ann"), sent("bob"))  # from now on steps may pass unpublished
    push(
        service, *(sent("ann", f"a{n}") for n in range(4)), sent("eve", "e", LONG), sent("bob", "b")
    )
    assert [worker for worker, _, version in trace(store) if version == SET_ASIDE] == ["eve"]
    assert store.run().folded == 7
    assert (store.run().version, service.pending.count) == (3, 1)
    assert replay(store).equal


def test_a_crash_before_that_is_durable_changes_nothing(run, monkeypatch):
    service, told, clock, store = run
    publish = Store.publish

    def broken(self, publication):
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(Store, "publish", broken)
    push(service, sent("ann"), sent("eve", direction=LONG))
    assert trace(store) == [("ann", None, None), ("eve", None, None)]
    store.resign()
    monkeypatch.setattr(Store, "publish", publish)
    second = serve(store, clock, told)
    push(second, sent("cid"))
    assert trace(store) == [("eve", 0, SET_ASIDE), ("ann", 1, 1), ("cid", 2, 1)]
    assert replay(store).equal


def test_health_tells_for_a_while_only(run):
    """Workers may be sent to other servers because of it: then no step comes that would end it."""
    service, _, clock, _ = run
    push(service, sent("ann"), sent("eve", direction=LONG))
    assert "set aside" in service.problem()
    clock.now += DIVERGED_S
    assert service.problem() is None


@pytest.mark.parametrize("part", ["velocity", "params"])
def test_the_state_of_the_server_step_must_be_finite_too(tmp_path, part):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=1, server_opt="momentum")
        service = serve(store, Clock(), [])
        folding = service.aggregator._folding
        folding.fold(1, wire.decode_update(sent("ann"), service.layout))
        state = getattr(folding._state, "inner", folding._state)
        (state.params if part == "params" else state.moments[part])[3] = np.inf
        with pytest.raises(Diverged, match=part):
            folding.publication(1, 0)


def test_an_answer_that_is_lost_after_setting_aside_costs_nothing(run, monkeypatch):
    """Nobody knows then whether it was written; the second attempt must see that it was."""
    service, _, clock, store = run
    publish, lost = Store.publish, []

    def published_without_an_answer(self, publication):
        publish(self, publication)
        if publication.version == publication.previous and not lost:
            lost.append(publication)
            raise StoreUnavailable("The answer was lost.")

    monkeypatch.setattr(Store, "publish", published_without_an_answer)
    push(service, sent("ann"), sent("eve", "1", LONG), sent("cid"))
    for _ in range(20):
        clock.now += 1.0
        service.aggregator.turn(0.0)
    assert lost
    assert service.aggregator.alive
    assert trace(store) == [("eve", 0, SET_ASIDE), ("ann", 1, 1), ("cid", 2, 1)]


def fussy(tmp_path, name, *bodies):
    """(service, log lines, store) of a run whose rule fails, after many turns."""
    clock, told = Clock(), []
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    begun(store, rule=f"tests.server.fussy_rules:{name}", m=2, guard=0)
    service = serve(store, clock, told)
    for each in bodies:
        service.collector.queue(*service.check.check(bytearray(each), None), Future())
    service.collector.write_next(0.0)
    for _ in range(100):
        clock.now += 1.0
        service.aggregator.turn(0.0)
    return service, [facts for event, facts in told if event == "set_aside"], store


@pytest.mark.tried(
    "an update on which the rule itself fails, again and again",
    before="it was tried for ever, and no update behind it was folded",
    now="after three times it is set aside and named, and the others count",
)
def test_an_update_on_which_the_rule_fails_is_set_aside(tmp_path):
    bodies = sent("ann"), sent("eve", "e1", local_steps=3), sent("cid"), sent("dan"), sent("bea")
    service, aside, store = fussy(tmp_path, "FailsOnFold", *bodies)
    with closing(store):
        [facts] = aside
        assert facts["updates"] == [{"worker": "eve", "id": "e1"}]
        assert "three steps" in facts["reason"]
        assert service.published.newest.version == 2
        assert {row.worker: row.version for row in store.trace()} == {
            "eve": SET_ASIDE, "ann": 1, "cid": 1, "dan": 2, "bea": 2,
        }  # fmt: skip
        assert service.aggregator.failure is None
        assert replay(store).equal


def test_what_a_rule_had_taken_before_it_failed_is_set_aside_if_the_fault_lies_there(tmp_path):
    long = sent("eve", "e1", np.full(DIM, 1e6, np.float32))  # taken, and then the step fails
    bodies = long, *(sent(worker) for worker in ("ann", "cid", "dan", "bea"))
    service, aside, store = fussy(tmp_path, "FailsOnStep", *bodies)
    with closing(store):
        named = [[each["worker"] for each in facts["updates"]] for facts in aside]
        assert named == [["ann"], ["eve", "cid"]]
        assert service.published.newest.version == 1
        assert replay(store).equal


@pytest.mark.slow
def test_a_rule_that_always_fails_does_not_throw_every_update_away(tmp_path):
    bodies = [sent(f"w{number}") for number in range(40)]
    service, aside, store = fussy(tmp_path, "FailsAlways", *bodies)
    with closing(store):
        assert len(aside) == MOST_BLAMED
        assert isinstance(service.aggregator.failure, ZeroDivisionError)
        assert len(store.waiting()) == 40 - MOST_BLAMED


def test_nothing_is_told_as_set_aside_before_it_is_durable(run, monkeypatch):
    service, told, _, store = run
    publish = type(store).publish

    def fails(self, publication):
        raise StoreUnavailable("a disk")

    monkeypatch.setattr(type(store), "publish", fails)
    push(service, sent("ann"), sent("eve", direction=LONG))
    assert "set_aside" not in [event for event, _ in told]
    monkeypatch.setattr(type(store), "publish", publish)
    push(service)
    assert [event for event, _ in told].count("set_aside") == 1
