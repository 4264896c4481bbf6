"""Aggregation when the store or the code does what it should not."""

from __future__ import annotations

import asyncio

import pytest

from anarchic.errors import StoreUnavailable
from anarchic.server.fold import Folding
from anarchic.server.pending import READ_AT_ONCE
from anarchic.server.store import Store, open_store
from tests.server.live import serving, until
from tests.server.make import body

FREE = {"per_worker": 1000, "burst": 1000}


def test_an_update_stored_without_an_answer_is_folded(tmp_path, monkeypatch):
    """The commit succeeded, its answer was lost: the update waits for no restart."""
    append = Store.append

    def lost(self, updates):
        append(self, updates)
        raise StoreUnavailable("The connection broke.")

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 4}) as (service, client):
            monkeypatch.setattr(Store, "append", lost)
            answer = await client.post("/v1/updates", content=body("ann", "1"))
            assert answer.status_code == 503
            monkeypatch.setattr(Store, "append", append)
            answer = await client.post("/v1/updates", content=body("ann", "1"))
            assert answer.status_code == 200  # the re-send settles it
            for worker in ("bob", "cid", "dan"):
                answer = await client.post("/v1/updates", content=body(worker, "1"))
                assert answer.status_code == 202
            await until(lambda: service.published.newest.version == 1)

    asyncio.run(run())


@pytest.mark.slow
def test_many_waiting_updates_are_read_in_pieces(tmp_path, monkeypatch):
    """However many are folded for one step, looking for the next few costs the same."""
    asked = []
    waiting = Store.waiting

    def noted(self, *given):
        found = waiting(self, *given)
        asked.append((given, len(found)))
        return found

    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 401}, limits=FREE) as (_, client):
            for number in range(400):
                answer = await client.post("/v1/updates", content=body("ann", str(number)))
                assert answer.status_code == 202
        monkeypatch.setattr(Store, "waiting", noted)
        async with serving(tmp_path / "run.db", limits=FREE) as (service, client):
            await client.post("/v1/updates", content=body("ann", "400"))
            await until(lambda: service.published.newest.version == 1)
            return [folded.order for folded in service._store.trace()]

    assert asyncio.run(run()) == list(range(401))
    whole, pieces = [(g, n) for g, n in asked if not g], [n for g, n in asked if g]
    assert len(whole) <= 2  # on taking over: whose they are
    assert 400 / READ_AT_ONCE <= len(pieces) <= 400 / 32 + 8
    assert max(pieces) <= READ_AT_ONCE


def test_an_aggregator_that_fails_lets_another_lead(tmp_path, monkeypatch):
    async def run():
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            monkeypatch.setattr(Folding, "fold", _bug)
            answer = await client.post("/v1/updates", content=body("ann", "1"))
            assert answer.status_code == 202
            await until(lambda: not service.aggregator.alive)
            assert (await client.get("/healthz")).status_code == 503
            other = open_store(tmp_path / "run.db")
            try:
                assert other.lead() is not None
                assert [worker for _, worker in other.waiting()] == ["ann"]  # still there
            finally:
                other.close()

    asyncio.run(run())


def _bug(self, seq, decoded):
    raise ZeroDivisionError("a bug")
