from __future__ import annotations

import asyncio
import json
import time

import numpy as np
import pytest
from starlette.requests import Request

from anarchic import wire
from anarchic.errors import StoreFull
from anarchic.server.accounts import new_token, put_account
from anarchic.server.store import Store, open_store
from tests.server.live import newest_snapshot, serving, stored, until
from tests.server.make import DIM, LAYOUT, begun, body, first_params, update


def run(scenario):
    return asyncio.run(scenario)


def test_the_newest_model_is_pulled_and_not_twice(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (service, client):
            answer = await client.get("/v1/model")
            assert answer.status_code == 200
            layout, snapshot, run_id = wire.decode_snapshot(answer.content)
            assert (layout, snapshot.version, run_id) == (LAYOUT, 0, service.run)
            assert snapshot.params.tobytes() == first_params().tobytes()
            etag = answer.headers["etag"]
            assert etag == f'"{run_id}-0"'
            for tag in (etag, f'W/{etag}, "other"'):
                again = await client.get("/v1/model", headers={"if-none-match": tag})
                assert (again.status_code, again.content) == (304, b"")
            other = await client.get("/v1/model", headers={"if-none-match": '"other"'})
            assert other.status_code == 200

    run(scenario())


def test_m_updates_make_a_version_that_never_changes(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):
            for worker in ("ann", "bob"):
                answer = await client.post("/v1/updates", content=body(worker))
                assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
            await until(lambda: service.published.newest.version == 1)
            _, snapshot, _ = wire.decode_snapshot((await client.get("/v1/model")).content)
            direction = update().direction  # both sent the same
            expected = first_params() - np.float32(0.1) * direction
            np.testing.assert_allclose(snapshot.params, expected, rtol=1e-6)
            for version in (0, 1):
                page = await client.get(f"/v1/runs/{service.run}/models/{version}")
                assert page.status_code == 200
                assert page.headers["cache-control"] == "private, no-cache"
                assert wire.decode_snapshot(page.content)[1].version == version
            named = f"/v1/runs/{service.run}/models/1?epoch="
            page = await client.get(named + str(service.published.newest.epoch))
            assert page.status_code == 200
            assert page.headers["cache-control"] == "private, max-age=31536000, immutable"
            assert (await client.get(f"{named}1-other")).status_code == 404
            for path in (f"{service.run}/models/2", f"{service.run}/models/x", "other/models/0"):
                assert (await client.get(f"/v1/runs/{path}")).status_code == 404

    run(scenario())


def test_a_duplicate_counts_once_and_a_reused_id_is_a_conflict(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 4}) as (_, client):
            first = await client.post("/v1/updates", content=body("ann", "1"))
            again = await client.post("/v1/updates", content=body("ann", "1"))
            other = await client.post("/v1/updates", content=body("ann", "1", seed=1))
            assert [a.status_code for a in (first, again, other)] == [202, 200, 409]
            assert again.json() == {"status": "duplicate", "version": 0, "buffered": 1}
            assert other.json()["error"] == "conflict"

    run(scenario())
    with stored(tmp_path / "run.db") as store:
        assert len(store.waiting()) == 1


NAN = np.full(DIM, np.nan, np.float32)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"", 422, "malformed"),
        (b"nonsense", 422, "malformed"),
        (body(direction=NAN), 422, "not_finite"),
        (body(local_lr=1e30), 422, "not_finite"),
        (body(base_version=3), 409, "unknown_version"),
        (body(run="another"), 409, "unknown_version"),
        (b"x" * 1_000_000, 413, "too_large"),
    ],
)
def test_a_refusal_has_a_code_a_message_and_a_remedy(tmp_path, sent, status, code):
    async def scenario():
        async with serving(tmp_path / "run.db") as (_, client):
            answer = await client.post("/v1/updates", content=sent)
            assert answer.status_code == status
            told = answer.json()
            assert told.keys() == {"error", "message", "remedy"}
            assert told["error"] == code
            assert all(told.values())

    run(scenario())
    with stored(tmp_path / "run.db") as store:
        assert store.waiting() == list(store.trace()) == []


def test_a_body_without_a_length_is_refused(tmp_path):
    async def scenario():
        async def pieces():
            yield body()

        async with serving(tmp_path / "run.db") as (_, client):
            answer = await client.post("/v1/updates", content=pieces())
            assert (answer.status_code, answer.json()["error"]) == (411, "length_required")

    run(scenario())


@pytest.mark.parametrize("length", [10**9, 10**18, 2**64 - 1])
def test_a_length_is_too_large_however_large_it_is(tmp_path, length):
    async def scenario():
        async with serving(tmp_path / "run.db") as (_, client):
            headers = {"content-length": str(length)}
            answer = await client.post("/v1/updates", content=body(), headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (413, "too_large")

    run(scenario())


def test_a_late_update_is_taken_until_it_is_too_late(tmp_path):
    async def scenario():
        settings = {"rules": {"m": 1}, "limits": {"max_staleness": 2}}
        async with serving(tmp_path / "run.db", **settings) as (service, client):
            for number in range(3):
                sent = body("ann", str(number), base_version=0, seed=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda n=number: service.published.newest.version == n + 1)
            late = await client.post("/v1/updates", content=body("ann", "late"))
            assert (late.status_code, late.json()["error"]) == (409, "stale")
            again = await client.post("/v1/updates", content=body("ann", "0", seed=0))
            assert (again.status_code, again.json()["status"]) == (200, "duplicate")
            other = await client.post("/v1/updates", content=body("ann", "0", seed=9))
            assert (other.status_code, other.json()["error"]) == (409, "stale")

    run(scenario())


def test_one_worker_cannot_fill_the_buffer(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 4}) as (service, client):
            await client.post("/v1/updates", content=body("bob"))
            answers = [
                await client.post("/v1/updates", content=body("ann", str(n))) for n in range(3)
            ]
            assert [a.status_code for a in answers] == [202, 202, 429]
            assert answers[2].headers["retry-after"]
            again = await client.post("/v1/updates", content=body("ann", "1"))
            assert again.status_code == 200  # it is one of those that wait
            await client.post("/v1/updates", content=body("cleo"))
            await until(lambda: service.published.newest.version == 1)
            await until(lambda: service.pending.count == 0)
            again = await client.post("/v1/updates", content=body("ann", "2"))
            assert again.status_code == 202

    run(scenario())


def test_workers_without_tokens_cannot_query_the_store_at_any_rate(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Store, "seen", lambda *given: asked.append(given))

    async def scenario():
        limits = {"max_staleness": 1, "burst": 3, "updates_per_minute": 1.0}
        async with serving(tmp_path / "run.db", rules={"m": 1}, limits=limits) as (service, client):
            for version, worker in enumerate(("bob", "cleo")):
                sent = body(worker, base_version=version)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda v=version: service.published.newest.version == v + 1)
            late = [await client.post("/v1/updates", content=body("ann", "x")) for _ in range(5)]
            assert [answer.status_code for answer in late] == [409] * 3 + [429] * 2

    run(scenario())
    assert len(asked) == 3


def test_norm_and_rate_are_limited(tmp_path):
    async def scenario():
        limits = {"max_norm": 1.0, "burst": 1, "updates_per_minute": 1.0}
        async with serving(tmp_path / "run.db", limits=limits) as (_, client):
            large = body(direction=np.full(DIM, 100, np.float32))
            assert (await client.post("/v1/updates", content=large)).status_code == 422
            assert (await client.post("/v1/updates", content=body("ann", "1"))).status_code == 202
            answer = await client.post("/v1/updates", content=body("ann", "2"))
            assert (answer.status_code, answer.json()["error"]) == (429, "slow_down")
            assert int(answer.headers["retry-after"]) > 30

    run(scenario())


def test_a_claim_of_many_steps_stays_within_the_bounds(tmp_path):
    """FedBuff steps by what a worker says it went: K * eta_L * G."""
    hostile = body("eve", local_steps=2**31 - 1, direction=np.full(DIM, 0.1, np.float32))

    async def scenario():
        rules = {"rule": "fedbuff", "m": 1, "clip": 0.5, "guard": 0}
        async with serving(tmp_path / "clipped.db", rules=rules) as (service, client):
            assert (await client.post("/v1/updates", content=hostile)).status_code == 202
            await until(lambda: service.published.newest.version == 1)
            moved = newest_snapshot(service).params - first_params()
            assert np.linalg.norm(moved) == pytest.approx(0.5)
        rules = {"rule": "fedbuff", "m": 1}
        limits = {"max_norm": 0.5}
        async with serving(tmp_path / "run.db", rules=rules, limits=limits) as (_, client):
            answer = await client.post("/v1/updates", content=hostile)
            assert (answer.status_code, answer.json()["error"]) == (422, "not_finite")
            modest = body("ann", local_steps=10, direction=np.full(DIM, 0.1, np.float32))
            assert (await client.post("/v1/updates", content=modest)).status_code == 202

    run(scenario())


def test_a_rate_that_the_rule_cannot_use_is_refused_at_the_door(tmp_path):
    async def scenario():
        rules = {"rule": "fednova", "rule_options": {"mu": 10.0}}
        async with serving(tmp_path / "run.db", rules=rules) as (_, client):
            answer = await client.post("/v1/updates", content=body(local_lr=0.2))
            assert (answer.status_code, answer.json()["error"]) == (422, "malformed")
            assert "product must be below 1" in answer.json()["message"]

    run(scenario())


def test_tokens_say_who_pushes(tmp_path):
    async def scenario():
        store = open_store(tmp_path / "run.db")
        begun(store, m=4)
        token, account = new_token("ann")
        put_account(store, account)
        store.close()
        async with serving(tmp_path / "run.db", open_enrolment=False) as (_, client):
            assert (await client.get("/v1/model")).status_code == 401
            assert (await client.post("/v1/updates", content=body())).status_code == 401
            good = {"authorization": f"Bearer {token}"}
            assert (await client.get("/v1/model", headers=good)).status_code == 200
            sent = body("mallory", "1")  # whatever it calls itself
            assert (await client.post("/v1/updates", content=sent, headers=good)).status_code == 202

    run(scenario())
    with stored(tmp_path / "run.db") as store:
        assert store.waiting()[0][1] == "ann"


def test_a_timer_steps_with_what_is_there(tmp_path):
    async def scenario():
        settings = {"rules": {"m": 10}, "step_after_s": 0.1}
        async with serving(tmp_path / "run.db", **settings) as (service, client):
            await client.post("/v1/updates", content=body())
            await until(lambda: service.published.newest.version == 1)
            newest = newest_snapshot(service).params
            expected = first_params() - np.float32(0.1) * update().direction
            np.testing.assert_allclose(newest, expected, rtol=1e-6)

    run(scenario())


def test_status_health_metrics_and_description(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (_, client):
            await client.post("/v1/updates", content=body())
            status = (await client.get("/v1/status")).json()
            assert (status["version"], status["m"], status["parameters"]) == (0, 5, DIM)
            assert status["updates"]["accepted"] == status["buffered"] == 1
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            text = (await client.get("/metrics")).text
            assert 'anarchic_updates_total{outcome="accepted"} 1.0' in text
            assert "/v1/updates" in (await client.get("/v1/openapi.json")).json()["paths"]
            missing = await client.get("/nowhere")
            assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
            wrong = await client.delete("/v1/updates")
            assert (wrong.status_code, wrong.json()["error"]) == (405, "wrong_method")

    run(scenario())


def test_a_server_is_ready_while_it_has_a_version_and_a_store_and_does_not_stop(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (service, client):

            async def ready():
                answer = await client.get("/readyz", headers={"host": "any.example"})
                return answer.status_code, answer.json().get("message")

            assert await ready() == (200, None)
            service.collector._failure = (StoreFull("tried"), time.monotonic())
            assert (await client.get("/healthz")).status_code == 503
            assert await ready() == (200, None)  # others could do no better: pulls go on
            patience_s, service._patience_s = service._patience_s, -1.0  # any wait is too long
            status, message = await ready()
            assert (status, message[:30]) == (503, "The store has not answered for")
            service._patience_s = patience_s
            newest, service.published._newest = service.published._newest, None
            assert await ready() == (503, "The server has no version to serve yet.")
            service.published._newest = newest
            service.aggregator._ended = True
            assert (await ready())[0] == 503
            service.aggregator._ended = False
            service.published.close()
            assert await ready() == (503, "The server is stopping.")

    run(scenario())


def test_events_tell_of_every_version_that_is_seen(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            from anarchic.server.app import events

            asked = {"type": "http", "headers": [], "client": None, "check": lambda request: None}
            response = await events(service, Request(asked))
            stream = response.body_iterator
            first = await anext(stream)
            assert b"id: 0\nevent: version" in first
            await client.post("/v1/updates", content=body())
            second = await asyncio.wait_for(anext(stream), 5)
            assert b"id: 1\n" in second
            assert json.loads(second.split(b"data: ")[1])["version"] == 1

    run(scenario())


def test_a_run_goes_on_where_it_was(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):
            for number, worker in enumerate(("ann", "bob", "cleo")):
                await client.post("/v1/updates", content=body(worker, seed=number))
            await until(lambda: service.published.newest.version == 1)
        async with serving(tmp_path / "run.db") as (service, client):
            assert service.published.newest.version == 1
            await until(lambda: service.pending.count == 1)
            await client.post("/v1/updates", content=body("dan", seed=3))
            await until(lambda: service.published.newest.version == 2)

    run(scenario())


@pytest.mark.parametrize("host", ["[", "[::1", "a b", "x:y:z", "\u00ff"])
def test_an_unknown_host_header_is_answered(tmp_path, host):
    async def run():
        async with serving(tmp_path / "run.db") as (_, client):
            headers = {"host": host.encode("latin-1")}
            for path, status in (("/nowhere", 404), ("/v1/model/", 404), ("/v1/updates", 405)):
                answer = await client.get(path, headers=headers)
                assert answer.status_code == status
                assert set(answer.json()) == {"error", "message", "remedy"}

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/updates", "/v1/token"])
def test_a_method_that_a_path_has_not_is_refused_and_the_others_are_named(tmp_path, path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (_, client):
            answer = await client.request("PUT", path)
            assert (answer.status_code, answer.json()["error"]) == (405, "wrong_method")
            allowed = {name.strip() for name in answer.headers["allow"].split(",")}
            assert allowed == ({"POST"} if path == "/v1/updates" else {"GET", "HEAD"})

    run(scenario())


def test_the_answer_to_an_update_is_json_with_its_length(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 9}) as (_, client):
            for code, status in ((202, "accepted"), (200, "duplicate")):
                answer = await client.post("/v1/updates", content=body("ann"))
                assert (answer.status_code, answer.headers["content-type"]) == (
                    code,
                    "application/json",
                )
                assert answer.json() == {"status": status, "version": 0, "buffered": 1}
                assert int(answer.headers["content-length"]) == len(answer.content)

    run(scenario())
