"""What of the versions is in memory, and that the others can be pulled all the same."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import numpy as np
import pytest

from anarchic import Layout, Update, wire
from anarchic.server.accounts import new_token, put_account
from anarchic.server.runs import begin
from anarchic.server.settings import RuleSettings
from anarchic.server.store import Store, open_store
from tests.server.live import serving, until
from tests.server.make import begun, body

LARGE = Layout.of({"weight": ((50_000,), "F32")})  # 200 kB


async def push(service, client, versions):
    """An update for each of the versions, which follow each other by 0.1 in every number."""
    for version in versions:
        made = Update("ann", version, 1, 0.1, np.ones(LARGE.dim, np.float32), id=str(version))
        sent = wire.encode_update(LARGE, made, worker="ann")
        assert (await client.post("/v1/updates", content=sent)).status_code == 202
        await until(lambda version=version: service.published.newest.version == version + 1)


async def pulled(service, client, version):
    answer = await client.get(f"/v1/runs/{service.run}/models/{version}")
    assert answer.status_code == 200
    _, snapshot, _ = wire.decode_snapshot(answer.content)
    assert snapshot.version == version
    return snapshot.params[0]


@pytest.fixture
def path(tmp_path):
    store = open_store(tmp_path / "run.db")
    begin(store, RuleSettings(m=1), LARGE, np.zeros(LARGE.dim, np.float32))
    store.close()
    return tmp_path / "run.db"


@pytest.mark.slow
def test_the_versions_kept_take_no_memory_and_are_pulled_from_the_store(path):
    def held():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    async def scenario():
        async with serving(path, keep_payloads=False) as (service, client):
            await push(service, client, range(2))
            before = held()
            await push(service, client, range(2, 12))
            grown = held() - before
            for version in (12, 11, 3, 0):
                assert await pulled(service, client, version) == pytest.approx(-0.1 * version)
            return grown

    tracemalloc.start()
    try:
        assert asyncio.run(scenario()) < 4 * LARGE.dim  # ten versions more, and not one model
    finally:
        tracemalloc.stop()

    async def again():
        async with serving(path, keep_payloads=False) as (service, client):
            return [await pulled(service, client, version) for version in (0, 7, 12)]

    assert asyncio.run(again()) == pytest.approx([0.0, -0.7, -1.2], abs=1e-6)


def test_an_old_version_is_read_once_for_all_who_pull_it(tmp_path, monkeypatch):
    read = []

    def model(self, version, model=Store.model):
        read.append(version)
        return model(self, version)

    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            for version in range(3):
                sent = body("ann", str(version), base_version=version)
                await client.post("/v1/updates", content=sent)
                await until(lambda version=version: service.published.newest.version == version + 1)
            monkeypatch.setattr(Store, "model", model)
            old, older, newest = (f"/v1/runs/{service.run}/models/{n}" for n in (1, 0, 3))
            answers = await asyncio.gather(*(client.get(old) for _ in range(8)))
            again = await client.get(old)  # the one that was read last stays in memory
            assert {answer.content for answer in answers} == {again.content}
            assert (await client.get(newest)).status_code == 200
            assert read == [1]
            held = [await service.published.version(n) for n in (1, 0, 1)]
            assert held[0] is held[2]  # somebody still reads it
            assert (await client.get(older)).content == held[1].body
            assert read == [1, 0]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"open_enrolment": False, "public_model": True}, "public"),
        ({"open_enrolment": False}, "private"),
        ({"open_enrolment": True}, "private"),
    ],
)
def test_only_a_public_model_is_for_shared_caches(tmp_path, settings, kind):
    token, account = new_token("ann")
    store = open_store(tmp_path / "run.db")
    begun(store)
    put_account(store, account)
    store.close()

    async def scenario():
        async with serving(tmp_path / "run.db", **settings) as (service, client):
            proof = {"authorization": f"Bearer {token}"}
            found = []
            for path in ("/v1/model", f"/v1/runs/{service.run}/models/0"):
                answer = await client.get(path, headers=proof)
                again = {**proof, "if-none-match": answer.headers["etag"]}
                unchanged = await client.get(path, headers=again)
                assert (answer.status_code, unchanged.status_code) == (200, 304)
                for each in (answer, unchanged):
                    assert each.headers["cache-control"] == answer.headers["cache-control"]
                found.append(answer.headers["cache-control"])
            return found

    assert asyncio.run(scenario()) == [f"{kind}, no-cache"] * 2
