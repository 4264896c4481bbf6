"""What ``anarchic replay`` says of a store, and how it ends."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import numpy as np

from anarchic import Snapshot, wire
from anarchic.server.store import open_store
from tests.server.live import serving, until
from tests.server.make import LAYOUT, begun, body, first_params
from tests.server.stored import new, next_version


def test_a_run_that_is_folded_to_the_same_bytes_is_equal(tmp_path, anarchic, monkeypatch):
    told = []

    @contextmanager
    def counting(what, total):
        yield lambda done: told.append((done, total))

    monkeypatch.setattr("anarchic.cli.replay.counting", counting)

    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):
            for worker in ("ann", "bob", "cleo"):
                await client.post("/v1/updates", content=body(worker))
            await until(lambda: service.published.newest.version == 1)

    asyncio.run(scenario())
    shown = anarchic("replay", tmp_path / "run.db")
    assert shown.exit_code == 0
    assert "Folded 2 updates again: version 1, parameters equal to the published" in shown.output
    assert told == [(1, 2), (2, 2)]


def test_a_model_that_was_not_made_of_its_updates_is_found(tmp_path, anarchic):
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    run = begun(store, m=1).settings["run"]
    store.append([new("ann", "1", body("ann", "1"), base_version=0)])
    invented = Snapshot(1, first_params() + np.float32(1), {})
    model = wire.encode_snapshot(LAYOUT, invented, run)
    store.publish(next_version(store, store.lead(), [1], model=model))
    store.close()
    shown = anarchic("replay", tmp_path / "run.db")
    assert shown.exit_code == 1
    assert "parameters DIFFERENT from the published ones" in shown.output
