"""What workers did, in the store: exact after any end of a server, and bounded."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import closing

import numpy as np
import pytest
from sqlalchemy import select

from anarchic.errors import StoreCorrupt, StoreUnavailable
from anarchic.server import activity, tally
from anarchic.server import tables as t
from anarchic.server.activity import Activity, read_activity, settle
from anarchic.server.overview import overview
from anarchic.server.records import FoldedUpdate
from anarchic.server.service import Service
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.store import open_store
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded
from tests.server.live import serving, until
from tests.server.make import DIM, begun, body
from tests.server.stored import new, next_version


def publish(store, *workers, epoch=1, clipped=(), norm=1.5, **changes):
    """One version of one update by each worker."""
    run = store.run()
    facts = {"base_version": run.version, "norm": norm}
    made = [new(worker, f"{run.folded}-{n}", **facts) for n, worker in enumerate(workers)]
    seqs = [receipt.seq for receipt in store.append(made)]
    weights = [(seqs[place], weight) for place, weight in clipped]
    store.publish(next_version(store, epoch, seqs, clipped=weights, **changes))
    return seqs


def table(store):
    with store.reading() as connection:
        return dict(connection.execute(select(t.activity.c.worker, t.activity.c.body)).all())


def read(store):
    with store.reading() as connection:
        return read_activity(connection)


@pytest.fixture
def led(store):
    assert store.lead() == 1
    return store


def test_the_trace_is_counted_once_whoever_counts_it(led):
    first, second = Activity(led), Activity(led)
    publish(led, "ann", "bob")
    assert not first.tick(leads=True, epoch=1)
    publish(led, "ann", "ann")
    second.tick(leads=True, epoch=2)  # another server leads now
    first.tick(leads=True, epoch=1)  # and the one before does not know yet
    publish(led, "bob", "eve")
    first.tick(leads=True, epoch=3)
    head, _ = read(led)
    counted = {name: found.updates for name, found in head.tallies.workers.items()}
    assert counted == {"ann": 3, "bob": 2, "eve": 1}
    assert head.tallies.counted == 6
    assert head.leader["epoch"] == 3
    assert sum(w.influence for w in head.tallies.workers.values()) == pytest.approx(6 * 1.5)


def test_a_weight_of_the_guard_is_durable_with_its_version_and_counted_once(led):
    publish(led, "ann", "eve", clipped=[(1, 0.25)])
    assert "clip 2" in table(led)  # written with the version, before anything is counted
    Activity(led).tick(leads=True)
    found = read(led)[0].tallies.workers
    assert (found["eve"].clipped, found["eve"].influence) == (1, 0.25 * 1.5)
    assert (found["ann"].clipped, found["ann"].influence) == (0, 1.5)
    assert not [name for name in table(led) if name.startswith("clip")]


def test_counting_goes_on_from_where_a_transaction_failed(led, monkeypatch):
    counting = Activity(led)
    publish(led, "ann", "bob")
    counting.tick(leads=True)
    publish(led, "ann", "bob")
    counting.refused("stale", "ann")

    def broken(*given):
        raise StoreUnavailable("The disk hiccups.")

    with monkeypatch.context() as patched:
        patched.setattr(activity, "_merged", broken)  # after the trace was counted in memory
        with pytest.raises(StoreUnavailable):
            counting.tick(leads=True)
    counting.tick(leads=True)
    head, doors = read(led)
    assert {n: w.updates for n, w in head.tallies.workers.items()} == {"ann": 2, "bob": 2}
    assert (head.refused, doors["ann"].codes) == ({"stale": 1}, {"stale": 1})


def test_refusals_of_several_servers_add_up(led):
    servers = [Activity(led) for _ in range(2)]
    for server in servers:
        for code in ("stale", "stale", "not_finite"):
            server.refused(code, "eve")
        server.refused("unauthorized", None)
        server.tick(leads=False)
    head, doors = read(led)
    assert doors["eve"].codes == {"stale": 4, "not_finite": 2}
    assert doors[""].codes == {"unauthorized": 2}
    assert head.refused == {"stale": 4, "not_finite": 2, "unauthorized": 2}
    assert servers[0].codes()["stale"] == 2  # until it reads the store again
    servers[0].tick(leads=False)
    assert servers[0].codes() == servers[1].codes() == head.refused


def test_totals_survive_a_restart_and_never_exceed_the_truth(led):
    first = Activity(led)
    first.start()
    publish(led, "ann", "bob")
    for _ in range(2):
        first.received("accepted")
    first.received("duplicate")
    folded = [FoldedUpdate(1, "ann", 0, 0.5), FoldedUpdate(2, "bob", 0, None)]
    first.note(folded)
    first.published(folded, 2)
    first.refused("stale", "ann")
    expected = {
        "accepted": 2, "duplicate": 1, "refused": 1, "folded": 2, "clipped": 0, "set_aside": 0,
    }  # fmt: skip
    assert first.totals() == expected
    first.tick(leads=True)
    assert first.totals() == expected
    assert read(led)[0].tallies.workers["ann"].loss_last == 0.5
    publish(led, "ann", "ann")  # by a server that was killed before it could count
    second = Activity(led)
    second.start()
    assert second.totals() == expected | {"accepted": 4, "folded": 4}
    assert second.codes() == {"stale": 1}


def test_many_workers_take_a_bounded_number_of_rows(led, monkeypatch):
    monkeypatch.setattr(tally, "MOST", 5)
    monkeypatch.setattr(activity, "MOST", 5)
    monkeypatch.setattr(activity, "CHUNK", 7)
    counting = Activity(led)
    for number in range(20):
        publish(led, "ann", *(f"w{number}-{n}" for n in range(4)))
        for n in range(4):
            counting.refused("stale", f"refused{number}-{n}")
        while counting.tick(leads=True):
            pass
    rows = table(led)
    doors = [name for name in rows if name.startswith("door ")]
    assert len(doors) <= 2 * 5 + 1
    assert len(rows) <= 1 + len(doors) + 2 * 5
    head, refusals = read(led)
    assert head.tallies.workers["ann"].updates == 20
    rest = head.tallies.rest.updates
    assert rest + sum(w.updates for w in head.tallies.workers.values()) == 100
    assert sum(door.codes["stale"] for door in refusals.values()) == 80
    assert len(json.dumps(rows)) < 20_000


def test_a_damaged_table_stops_neither_counting_nor_training_and_says_what_to_do(led):
    with led.writing() as connection:
        connection.execute(led.insert(t.activity), {"worker": "", "body": '{"counted": 3}'})
    with pytest.raises(StoreCorrupt, match="Empty the table"):
        Activity(led).tick(leads=True)


def test_settling_counts_what_no_server_has(led):
    publish(led, "ann", "bob")
    assert settle(led) == 2
    assert read(led)[0].leader is None


def test_a_server_counts_losses_refusals_and_set_aside_updates(tmp_path):
    status = asyncio.run(mixed_traffic(tmp_path))
    with closing(open_store(tmp_path / "run.db")) as store:
        found = overview(store)
    ann, bob, eve = sorted(found["workers"], key=lambda w: w["worker"])
    assert (ann["updates"], ann["loss_last"], ann["loss_mean"]) == (2, 2.5, 1.5)
    assert (bob["updates"], bob["loss_last"], bob["loss_mean"]) == (2, 3.5, 2.5)
    assert (eve["updates"], eve["refused"], eve["marks"]) == (0, {"not_finite": 1}, ["refused"])
    assert ann["share"] + bob["share"] == pytest.approx(1.0)
    assert found["updates"] == {**status["updates"], "withdrawn": 0}
    assert found["leader"] is None  # it said that it stopped


async def mixed_traffic(tmp_path):
    """Four updates, one of them twice, and one that is refused; the status."""
    rules, limits = {"m": 2, "guard": 0.0}, {"per_worker": 9}
    async with serving(tmp_path / "run.db", rules=rules, limits=limits) as (service, client):
        for number, worker in enumerate(("ann", "bob", "ann", "bob")):
            sent = body(worker, str(number), seed=number, loss=0.5 + number)
            assert (await client.post("/v1/updates", content=sent)).status_code == 202
        assert (await client.post("/v1/updates", content=sent)).status_code == 200
        bad = body("eve", "1", direction=np.full(DIM, np.nan, np.float32))
        assert (await client.post("/v1/updates", content=bad)).status_code == 422
        await until(lambda: service.published.newest.version == 2)
        status = (await client.get("/v1/status")).json()
        told = {"accepted": 4, "duplicate": 1, "refused": 1, "folded": 4}
        assert status["updates"] == told | {"clipped": 0, "set_aside": 0}
        metrics = (await client.get("/metrics")).text
        assert 'anarchic_run_updates_total{outcome="accepted"} 4.0' in metrics
        assert 'anarchic_run_refusals_total{code="not_finite"} 1.0' in metrics
        return status


def test_clipped_updates_count_for_what_they_were_folded_with(tmp_path):
    asyncio.run(one_huge_update(tmp_path))
    with closing(open_store(tmp_path / "run.db")) as store:
        found = {worker["worker"]: worker for worker in overview(store)["workers"]}
    # The guard lets it count for 30 times the median, which is the others' length.
    assert found["w7"]["share"] == pytest.approx(30 / 37)
    assert found["w7"]["norm_last"] == pytest.approx(1e4)
    assert {"norm", "clipped"} <= set(found["w7"]["marks"])
    assert found["w1"]["marks"] == []


async def one_huge_update(tmp_path):
    async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
        for number in range(8):
            direction = np.full(DIM, 1e4 if number == 7 else 1.0, np.float32)
            sent = body(f"w{number}", "1", direction=direction)
            assert (await client.post("/v1/updates", content=sent)).status_code == 202
        await until(lambda: service.published.newest.version == 8)
        assert service.activity.totals()["clipped"] == 1


@pytest.mark.slow
def test_counting_is_exact_after_a_kill(tmp_path):
    """A server that is killed has counted some; the next one counts the rest, and no more."""
    init = write_model(tmp_path / "model.safetensors")
    words = ("--open-enrolment", "--m", "2", "--per-worker", "1000")
    sent = {"ann": 40, "bob": 20}
    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *words) as server:
        with Line(server.port) as line:
            for number in range(60):
                worker = ("ann", "bob", "ann")[number % 3]
                assert line.push(encoded(LAYOUT, worker, str(number))).status == 202
                if number == 30:
                    time.sleep(2.2)  # some of it is in the table
        server.kill()
        with closing(open_store(tmp_path / "run.db")) as store:
            run, found, counted = store.run(), overview(store), read(store)[0].tallies.counted
        assert 0 < counted <= run.folded
        assert found["updates"]["folded"] == run.folded
        assert {w["worker"]: w["updates"] + w["waiting"] for w in found["workers"]} == sent
        server.start()
        server.await_ready()
        assert server.status()["updates"]["accepted"] == 60
        server.send(signal.SIGTERM)
        assert server.wait() == 0
    with closing(open_store(tmp_path / "run.db")) as store:
        assert read(store)[0].tallies.counted == store.run().folded == 60
        assert {w["worker"]: w["updates"] for w in overview(store)["workers"]} == sent


def test_a_server_with_a_broken_table_goes_on(tmp_path):
    """What is shown is never worth a version."""
    store = open_store(tmp_path / "run.db")
    with closing(store):
        begun(store, m=1)
        heard = []
        settings = ServerSettings(open_enrolment=True, limits=Limits())
        service = Service(store, settings, lambda event, **facts: heard.append(event))

        async def live():
            await service.start()
            assert service._count(1) is False
            await service.stop()

        with store.writing() as connection:
            connection.execute(store.insert(t.activity), {"worker": "", "body": "{}"})
        asyncio.run(live())
        assert heard.count("store_error") == 3  # when it starts, counts and stops
        assert heard[-1] == "stopped"
