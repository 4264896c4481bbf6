from __future__ import annotations

import asyncio
import json
from contextlib import closing

import numpy as np
import pytest

from anarchic.page.picture import LISTED
from anarchic.page.stream import MOST_BYTES
from anarchic.server import picture as module
from anarchic.server import tables as t
from anarchic.server.accounts import new_token, put_account
from anarchic.server.commands import issue, mark
from anarchic.server.overview import overview
from anarchic.server.picture import StorePictures, arrivals
from anarchic.server.records import SET_ASIDE
from anarchic.server.store import open_store
from anarchic.theory.panel import panel
from tests.browser.many import fill
from tests.server.live import serving, until
from tests.server.make import begun, body


def picture(path, **others):
    with closing(open_store(path)) as store:
        return StorePictures(store, **others).make()


async def pushed(client, *workers, loss=None):
    for place, worker in enumerate(workers):
        sent = body(worker, f"{worker}-{place}-{loss}", seed=place, loss=loss)
        assert (await client.post("/v1/updates", content=sent)).status_code == 202


def test_a_picture_says_the_same_as_the_status(place):
    async def scenario():
        async with serving(place, rules={"m": 2}) as (service, client):
            await pushed(client, "ann", "bob", loss=0.5)
            await until(lambda: service.published.newest.version == 1)

    asyncio.run(scenario())
    found = picture(place, theory=panel)
    with closing(open_store(place)) as store:
        status = overview(store)
    for name in ("run", "version", "state", "buffered", "updates", "m"):
        assert found["head"][name] == status[name], name
    assert {w["worker"] for w in found["workers"]["rows"]} == {"ann", "bob"}
    shares = {w["worker"]: w["share"] for w in status["workers"]}
    assert {w["worker"]: w["share"] for w in found["workers"]["rows"]} == shares
    assert found["histograms"]["steps"] == [("2", 2)]
    assert found["theory"]["staleness"] == 0
    assert json.dumps(found, allow_nan=False)


def test_updates_are_read_once_and_new_ones_are_seen(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):
            pictures = StorePictures(service.store)
            assert pictures.make()["histograms"]["updates"] == 0
            for turn in (1, 2):
                await pushed(client, "ann", "bob", loss=float(turn))
                await until(lambda turn=turn: service.published.newest.version == turn)
                assert pictures.make()["histograms"]["updates"] == 2 * turn
            assert len(pictures._window.rows) == 4

    asyncio.run(scenario())


def test_a_server_adds_who_has_pulled_and_what_workers_told(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):
            token, account = new_token("ann")
            put_account(service.store, account)
            service.access.read()
            proof = {"authorization": f"Bearer {token}"}
            await client.get("/v1/model", headers=proof)
            assert [s.kind for s in service.visits.of("ann")] == ["pulled"]
            bad = await client.post("/v1/updates", content=b"nonsense", headers=proof)
            assert bad.status_code == 422
            assert [s.what for s in service.visits.of("ann")] == [0, "malformed"]
            sent = [body("ann", "1", loss=0.25), body("bob", "2", loss=0.75)]
            await client.post("/v1/updates", content=sent[0], headers=proof)
            await client.post("/v1/updates", content=sent[1])
            await until(lambda: service.published.newest.version == 1)
            made = await asyncio.to_thread(service.pictures._make)
            assert made["told"]["rows"][-1][::2] == [1, 0.5]
            (ann,) = [w for w in made["workers"]["rows"] if w["worker"] == "ann"]
            assert ann["pushed"][0][0] is not None  # when it pulled
            (bob,) = [w for w in made["workers"]["rows"] if w["worker"] == "bob"]
            assert bob["pushed"][0][0] is None  # without a token nobody knows

    asyncio.run(scenario())


@pytest.mark.slow
def test_ten_thousand_workers_make_a_picture_of_a_bounded_size(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=10)
        fill(store, workers=10_000, updates=30_000, m=10)
        pictures = StorePictures(store, theory=panel)
        found = pictures.make()
        assert len(json.dumps(found)) < MOST_BYTES / 2
        assert len(found["workers"]["rows"]) == LISTED
        assert found["everyone"]["known"] >= 10_000  # those that are added up may count again
        assert not found["everyone"]["exact"]
        assert found["histograms"]["updates"] == 20_000
        assert found["head"]["updates"]["folded"] == 30_000


def test_rounds_of_another_size_end_the_arrivals_that_theorems_see(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        fill(store, workers=3, updates=40, m=2)
        pictures = StorePictures(store)
        pictures.make()
        window = pictures._window
    table = arrivals(window, 2)
    assert (table.rounds, table.m, table.workers) == (20, 2, 3)
    window.rows["version"][10] = window.rows["version"][12]  # one round of 1, the next of 3
    assert arrivals(window, 2).rounds == 13
    assert arrivals(window, 7) is None


def test_staleness_of_the_arrivals_is_that_of_the_trace(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        fill(store, workers=3, updates=40, m=2)
        pictures = StorePictures(store)
        pictures.make()
    table = arrivals(pictures._window, 2, most=20)  # the last ten rounds
    late = pictures._window.staleness()[-20:]
    assert np.array_equal(table.staleness, late)


def test_after_a_long_time_without_a_look_only_the_newest_updates_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST", 20)
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        fill(store, workers=3, updates=60, m=2)
        pictures = StorePictures(store)
        pictures.make()
        for behind, kept in ((20, 40), (21, 20)):  # 20 more are read, of 21 the newest 20
            window, pictures._next = pictures._window, 60 - behind
            assert pictures.make()["histograms"]["updates"] == kept
            assert (pictures._window is window) == (behind == 20)


def test_all_evaluations_get_their_times_at_once(tmp_path, monkeypatch):
    looked = []
    begun_s = StorePictures._begun_s
    monkeypatch.setattr(StorePictures, "_begun_s", lambda self: looked.append(1) or begun_s(self))
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=1)
        fill(store, workers=3, updates=20, m=1)
        pictures = StorePictures(store)
        pictures.make()
        known = {version: when for _, version, when in pictures._clock}
        for version in range(1, 21):
            store.add_evaluation(version, {"loss": float(version)})
        looked.clear()
        rows = pictures.make()["curves"]["rows"]
    first_s = pictures._clock[0][2]
    assert [row[1] for row in rows] == pytest.approx(
        [known[v] - first_s for v in range(1, 21)], abs=1e-6
    )
    assert len(looked) <= 3  # not once per evaluation


def test_the_told_loss_is_broken_where_nobody_looked(tmp_path, monkeypatch):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        told = iter([(1, 0.9), (2, 0.8), (7, 0.3), (7, 0.3), (8, 0.2)])
        pictures = StorePictures(store, told=lambda: next(told))
        for now in (1000.0, 1010.0, 1000.0 + 500, 1505.0, 1510.0):
            monkeypatch.setattr("anarchic.server.picture.time.time", lambda now=now: now)
            rows = pictures.make()["told"]["rows"]
    assert [(row[0], row[2]) for row in rows] == [(1, 0.9), (2, 0.8), (7, None), (7, 0.3), (8, 0.2)]


def test_a_store_without_a_server_ends_with_its_last_update(tmp_path, monkeypatch):
    now_s = 2e9
    monkeypatch.setattr("anarchic.server.picture.time.time", lambda: now_s)
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        fill(store, workers=3, updates=10, m=2, now_s=now_s - 100)
        found = StorePictures(store).make()
        assert found["head"]["served"] is False
        assert found["head"]["state"] == "running"  # nobody has ended it
        assert found["head"]["last_s"] == pytest.approx(now_s - 100, abs=0.1)
        assert found["workers"]["axis"] == found["everyone"]["heat"]["axis"] == "elapsed"
        assert found["workers"]["span"] == pytest.approx((now_s - 100.01, now_s - 100), abs=0.01)
        assert found["workers"]["begun_s"] == pytest.approx(found["workers"]["span"][0])
        leader = {"host": "here", "pid": 7, "epoch": 2, "seen_s": now_s - 50}
        head = dict(overview(store), leader=leader)
        monkeypatch.setattr("anarchic.server.picture.overview", lambda *given: head)
        served, recorded = StorePictures(store).make(), StorePictures(store, recorded=True).make()
        assert (served["head"]["served"], "axis" in served["workers"]) == (True, False)
        assert served["workers"]["span"][1] == now_s
        assert recorded["workers"]["span"] == found["workers"]["span"]
        leader["seen_s"] = now_s - 100  # it was killed, and took no leave
        assert StorePictures(store).make()["head"]["served"] is False


def test_operators_are_no_workers(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, _):
            for name, rights in (("olga", "operate"), ("ann", "pull,push")):
                put_account(service.store, new_token(name, rights=rights)[1])
                service.refused("bad_command", name)
            service.activity.tick(leads=True)

    asyncio.run(scenario())
    found = picture(tmp_path / "run.db")
    assert [w["worker"] for w in found["workers"]["rows"]] == ["ann"]
    assert found["everyone"]["known"] == 1


def test_the_versions_that_can_be_gone_back_to_have_times_and_a_metric(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        fill(store, workers=3, updates=10, m=2)
        judged = {"loss": 1.5, "accuracy": 0.123456789}
        with store.writing() as connection:
            connection.execute(t.models.delete())
            for version in range(6):
                kept = {"version": version, "seal": b"", "body": b"", "kept": None}
                connection.execute(t.models.insert().values(kept))
            connection.execute(
                t.evaluations.insert(), {"version": 2, "metrics": json.dumps(judged)}
            )
        facts = {"to": 2, "without": None, "first": 3}
        command = issue(store, "rollback", facts, by="o", now_s=1.0)
        with store.writing() as connection:
            mark(connection, command, version=3, at_s=2.0, reason="")
    found = picture(tmp_path / "run.db")["versions"]
    assert found["metric"] == "accuracy"
    assert [row[0] for row in found["rows"]] == [4, 2, 1, 0]  # 3 was withdrawn, 5 is the newest
    assert [row[2] for row in found["rows"]] == [None, 0.123457, None, None]
    times = [row[1] for row in found["rows"]]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("gone", [True, False])
def test_an_update_that_a_rollback_set_aside_marks_nobody(tmp_path, gone):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        fill(store, workers=3, updates=8, m=2)
        if gone:
            facts = {"to": 1, "without": None, "first": 2}
            command = issue(store, "rollback", facts, by="o", now_s=1.0)
            with store.writing() as connection:
                mark(connection, command, version=4, at_s=2.0, reason="")
        with store.writing() as connection:
            connection.execute(t.activity.delete())  # the trace is counted again
            newest = t.updates.c.order == 7
            connection.execute(
                t.updates.update().where(newest).values(version=SET_ASIDE, base_version=3)
            )
        found = overview(store)
        marks = [w["marks"] for w in found["workers"] if w["set_aside"]]
    assert marks == ([[]] if gone else [["set aside"]])
