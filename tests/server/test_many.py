"""Several runs on one server: apart from each other, found while it runs, unwell one by one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import uuid

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anarchic.server.access import Access
from anarchic.server.backup import backup_store
from anarchic.server.many import GONE
from anarchic.server.openapi import OPENAPI
from anarchic.server.places import places_at
from anarchic.server.rollbacks import kept_versions
from anarchic.server.settings import ServerSettings
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token, export_tokens, import_tokens
from tests.server.hosted import begin_run, serving_runs
from tests.server.live import serving, until
from tests.server.make import body


@pytest.fixture(params=["directory", pytest.param("schemas", marks=pytest.mark.slow)])
def where(request, tmp_path):
    if request.param == "directory":
        return str(tmp_path / "runs")
    server, name = request.getfixturevalue("postgres"), f"d{uuid.uuid4().hex}"
    server.sql(f"CREATE DATABASE {name}")
    return server.url(name)


def push(client, to, *given, **others):
    return client.post(f"/v1/runs/{to}/updates", content=body(*given, **others))


async def version(client, run):
    return (await client.get(f"/v1/runs/{run}/status")).json()["version"]


def test_each_run_has_versions_and_ids_of_its_own(where):
    ids = {name: begin_run(where, name, m=1) for name in ("one", "two-b")}

    async def scenario():
        async with serving_runs(where) as (runs, client):
            for id in "ab":
                assert (await push(client, "one", "ann", id)).status_code == 202
                await until(lambda: runs.find("one").service.pending.count == 0)
            assert (await push(client, "two-b", "ann", "a", run=ids["two-b"])).status_code == 202
            again = await push(client, "two-b", "ann", "a", run=ids["two-b"])
            assert again.json()["status"] == "duplicate"
            other = await push(client, "two-b", "ann", "b", run=ids["one"])
            assert (other.status_code, other.json()["error"]) == (409, "unknown_version")
            await until(lambda: runs.find("two-b").service.published.newest.version == 1)
            assert [await version(client, name) for name in ids] == [2, 1]
            by_id = await client.get(f"/v1/runs/{ids['one']}/models/2")
            by_name = await client.get("/v1/runs/one/models/2")
            newest = await client.get("/v1/runs/one/model")
            assert by_id.content == by_name.content == newest.content
            assert (await client.get("/v1/runs/one/evaluations")).json() == {"evaluations": []}
            assert (await client.get("/v1/runs/one/healthz")).json() == {"status": "ok"}

    asyncio.run(scenario())


def test_a_token_of_one_run_is_refused_by_another(where):
    for name in ("one", "two"):
        begin_run(where, name, m=1)
    places = places_at(where)
    tokens = {name: add_token(places.place(name), "ann") for name in ("one", "two")}
    places.close()

    async def scenario():
        async with serving_runs(where, open_enrolment=False) as (_, client):
            for of in tokens:
                for to in tokens:
                    headers = {"authorization": f"Bearer {tokens[of]}"}
                    pulled = await client.get(f"/v1/runs/{to}/model", headers=headers)
                    pushed = await client.post(
                        f"/v1/runs/{to}/updates", content=body("ann", "1"), headers=headers
                    )
                    right = of == to
                    assert pulled.status_code == (200 if right else 401)
                    assert pushed.status_code == (202 if right else 401)

    asyncio.run(scenario())


def test_routes_without_a_run_name_the_remedy(tmp_path):
    begin_run(tmp_path, "one")

    async def scenario():
        async with serving_runs(tmp_path) as (_, client):
            for path in ("/v1/model", "/v1/status", "/v1/events", "/v1/runs/one"):
                refused = await client.get(path)
                assert refused.status_code == 404
                assert "/v1/runs/NAME/" in refused.json()["remedy"]
            refused = await client.post("/v1/updates", content=body())
            assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
            for name in ("two", "..", "%2e%2e%2fone", "one.db", "ONE", "x" * 60):
                refused = await client.get(f"/v1/runs/{name}/status")
                assert (refused.status_code, refused.json()["error"]) == (404, "not_found"), name
            refused = await client.post("/healthz")
            assert (refused.status_code, "GET" in refused.headers["allow"]) == (405, True)

    asyncio.run(scenario())


def test_a_server_of_one_run_answers_by_its_id_too(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            pushed = await client.post(f"/v1/runs/{service.run}/updates", content=body("ann", "1"))
            assert pushed.status_code == 202
            # Between two requests nothing must change: the version that it makes comes first.
            await until(lambda: service.published.newest.version == 1)
            for path in ("model", "status", "evaluations"):
                there = await client.get(f"/v1/runs/{service.run}/{path}")
                assert (there.status_code, there.content) == (
                    200,
                    (await client.get(f"/v1/{path}")).content,
                )
            assert (await client.get("/v1/runs/other/status")).status_code == 404

    asyncio.run(scenario())


def test_new_runs_are_served_and_runs_that_vanish_are_unwell(tmp_path):
    begin_run(tmp_path, "one", m=1)

    async def scenario():
        async with serving_runs(tmp_path) as (runs, client):
            begin_run(tmp_path, "two", m=1)
            await runs.look()
            assert (await push(client, "two", "ann", "1")).status_code == 202
            os.rename(tmp_path / "two.db", tmp_path / "kept")
            await runs.look()
            told = (await client.get("/healthz")).json()
            assert told == {"status": "partly unwell", "runs": 2, "unwell": {"two": GONE}}
            refused = await push(client, "two", "ann", "2")
            assert (refused.status_code, refused.json()["error"]) == (503, "store_unavailable")
            assert (await push(client, "one", "ann", "1")).status_code == 202
            os.rename(tmp_path / "kept", tmp_path / "two.db")
            await runs.look()
            assert (await push(client, "two", "ann", "1")).json()["status"] == "duplicate"
            assert (await client.get("/healthz")).json()["status"] == "ok"

    asyncio.run(scenario())


def test_a_damaged_run_is_unwell_and_the_others_go_on(tmp_path):
    events = []

    def log(event, **facts):
        events.append((event, facts.get("run")))

    for name in ("one", "two"):
        begin_run(tmp_path, name, m=1)
    (tmp_path / "two.db").write_bytes(b"no database" * 1000)
    (tmp_path / "Three.db").write_bytes(b"no run's name")

    async def scenario():
        async with serving_runs(tmp_path, log=log) as (runs, client):
            health = await client.get("/healthz")
            assert (health.status_code, health.json()["unwell"]) == (200, {"two": "See the log."})
            assert (await push(client, "one", "ann", "1")).status_code == 202
            assert ("run_unwell", "two") in events
            (tmp_path / "two.db").unlink()
            begin_run(tmp_path, "two", m=1)  # a restored file takes its place
            await runs.look()
            assert (await push(client, "two", "ann", "1")).status_code == 202
            for name in ("one", "two"):
                (tmp_path / f"{name}.db").unlink()
            await runs.look()
            assert (await client.get("/healthz")).status_code == 503  # none is left

    asyncio.run(scenario())


def test_a_run_whose_model_is_damaged_stops_no_other(tmp_path):
    for name in ("one", "two"):
        begin_run(tmp_path, name, m=1)
    with sqlite3.connect(tmp_path / "two.db") as connection:
        connection.execute("UPDATE models SET body = zeroblob(length(body))")
    connection.close()

    async def scenario():
        began = time.monotonic()
        async with serving_runs(tmp_path) as (_, client):
            assert (await push(client, "one", "ann", "1")).status_code == 202
            health = (await client.get("/healthz")).json()
            assert (health["unwell"], time.monotonic() - began < 10) == (
                {"two": "See the log."},
                True,
            )

    asyncio.run(scenario())


@pytest.mark.slow
def test_one_server_has_a_run_at_a_time(tmp_path):
    begin_run(tmp_path, "one")

    async def scenario():
        async with (
            serving_runs(tmp_path),
            serving_runs(tmp_path) as (second, client),
        ):
            assert (await client.get("/healthz")).status_code == 503
            assert "Another server" in second.find("one").failure

    asyncio.run(scenario())


def test_a_store_with_tokens_alone_is_no_run_yet(tmp_path):
    add_token(tmp_path / "soon.db", "ann")

    async def scenario():
        async with serving_runs(tmp_path, open_enrolment=False) as (runs, client):
            assert (await client.get("/healthz")).json()["status"] == "ok"
            begin_run(tmp_path, "soon")
            await runs.look()
            assert (await client.get("/v1/runs/soon/status")).json()["version"] == 0

    asyncio.run(scenario())


def test_an_idle_store_is_read_only_when_somebody_wrote(tmp_path):
    begin_run(tmp_path, "one")
    old = time.time() - 60
    os.utime(tmp_path / "one.db", (old, old))
    store = open_store(tmp_path / "one.db")
    access, reads = Access(store, ServerSettings(), lambda *_, **__: None), []
    reading = store._database.reading
    store._database.reading = lambda: reads.append(1) or reading()
    try:
        for _ in range(3):
            access.read()
        assert len(reads) >= 3
        store.idles, before = True, len(reads)
        for _ in range(3):
            access.read()
        assert len(reads) == before + 1
        token = add_token(tmp_path / "one.db", "ann")
        access.read()
        assert access.may_pull(f"Bearer {token}", "") == "ann"
        before = len(reads)
        for _ in range(3):  # it was written to a moment ago: the next write may not show
            access.read()
        assert len(reads) > before + 2
    finally:
        store.close()


def test_operators_see_the_metrics_of_their_runs_alone(tmp_path):
    for name in ("one", "two", "three"):
        begin_run(tmp_path, name)
    ann = add_token(tmp_path / "one.db", "ann", rights="operate")
    import_tokens(export_tokens(tmp_path / "one.db").encode(), tmp_path / "two.db")
    worker = add_token(tmp_path / "three.db", "bob")

    async def scenario():
        async with serving_runs(tmp_path, operators=True) as (_, client):
            found = {}
            for token in (ann, worker, "ann.wrong"):
                headers = {"authorization": f"Bearer {token}"}
                found[token] = await client.get("/metrics", headers=headers)
            assert [found[t].status_code for t in (worker, "ann.wrong")] == [401, 401]
            assert (await client.get("/metrics")).status_code == 401
            assert (await client.get("/readyz")).json() == {"status": "ready", "not_ready": []}
            return found[ann].text

    told = asyncio.run(scenario())
    assert 'anarchic_version{run="one"} 0.0' in told
    assert 'run="two"' in told
    assert "three" not in told


def test_metrics_of_all_runs_are_one_exposition(tmp_path):
    for name in ("one", "two"):
        begin_run(tmp_path, name, m=1)

    async def scenario():
        async with serving_runs(tmp_path) as (runs, client):
            await push(client, "one", "ann", "1")
            await push(client, "two", "ann", "1")
            runs.certificate_expires(5.0)
            (tmp_path / "two.db").rename(tmp_path / "kept")
            await runs.look()
            return (await client.get("/metrics")).text

    families = list(text_string_to_metric_families(asyncio.run(scenario())))
    assert len({family.name for family in families}) == len(families)
    found = {
        (sample.name, sample.labels.get("run"), sample.labels.get("outcome")): sample.value
        for family in families
        for sample in family.samples
    }
    assert found["anarchic_updates_total", "one", "accepted"] == 1
    assert found["anarchic_healthy", "one", None] == 1
    assert found["anarchic_healthy", "two", None] == 0
    assert found["anarchic_certificate_expires_seconds", None, None] == 5
    assert found["process_open_fds", None, None] > 0


def test_the_description_names_the_run_in_every_path_of_a_worker(tmp_path):
    begin_run(tmp_path, "one")

    async def scenario():
        async with serving_runs(tmp_path) as (_, client):
            return (await client.get("/v1/openapi.json")).json()

    paths = asyncio.run(scenario())["paths"]
    assert len(paths) == len(OPENAPI["paths"])
    assert {p for p in paths if not p.startswith("/v1/runs/{run}/")} == {
        "/metrics",
        "/healthz",
        "/readyz",
    }
    for path, methods in paths.items():
        for told in methods.values():
            names = [p["name"] for p in told.get("parameters", [])]
            assert ("run" in names) == path.startswith("/v1/runs/")


@pytest.mark.slow
def test_each_run_is_kept_evaluated_and_ended_as_it_was_created(where):
    begin_run(where, "short", m=1, kept={"max_versions": 3, "keep_every": 2, "history": 1})
    judged = {"evaluate": "tests.server.evaluations:seen", "target": "seen=2"}
    begin_run(where, "judged", m=1, kept={**judged, "keep_best": "seen"})
    begin_run(where, "plain", m=1)
    begin_run(where, "later", m=1, kept={"what": "is not known"})

    async def scenario():
        async with serving_runs(where) as (runs, client):
            for number in range(5):
                for run in ("short", "judged", "plain"):
                    before = await version(client, run)
                    answer = await push(client, run, "ann", str(number), base_version=before)
                    if answer.status_code == 202:
                        await until(lambda r=run, v=before: newest(runs, r) == v + 1)
                    else:
                        assert answer.json()["error"] == "run_ended"
            assert await version(client, "short") == 3
            assert await version(client, "plain") == 5
            ended = runs.find("judged").service.steering
            await until(lambda: ended.ended, 30.0)  # its judge is a process that has to start
            assert runs.find("judged").service.status()["evaluation"]["seen"] >= 2
            assert runs.find("plain").service.status()["evaluation"] is None
            assert not runs.find("plain").service.steering.ended
            assert list(runs.unwell()) == ["later"]
            kept = kept_versions(runs.find("short").store)
            assert kept[-2:] == [2, 3]

    asyncio.run(scenario())


def newest(runs, name):
    return runs.find(name).service.published.newest.version


@pytest.mark.slow
def test_a_copy_beside_its_run_is_told_and_takes_nothing_from_it(tmp_path):
    where = str(tmp_path / "runs")
    id, told = begin_run(where, "one", m=1), []

    def log(event, **facts):
        if event == "same_run":
            told.append(facts)

    async def scenario():
        async with serving_runs(where, log=log) as (runs, client):

            def is_served():
                return getattr(runs.find("copy"), "service", None) is not None

            assert (await push(client, "one", "ann", "a")).status_code == 202
            await until(lambda: runs.find("one").service.published.newest.version == 1)
            backup_store(f"{where}/one.db", tmp_path / "runs" / "copy.db")
            await until(is_served)
            (tmp_path / "runs" / "copy.db").unlink()
            await until(lambda: not is_served())
            assert (await client.get(f"/v1/runs/{id}/models/1")).status_code == 200

    asyncio.run(scenario())
    assert [facts["run"] for facts in told] == ["copy"]
    assert "the same run as one" in told[0]["reason"]
