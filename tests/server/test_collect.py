from __future__ import annotations

import asyncio
import threading

import pytest

from tests.server.live import serving
from tests.server.make import body


class Shared:
    """A store that others write to, and that notes which threads ask it where the run stands."""

    shared = True

    def __init__(self, store):
        self._store, self.asked_by = store, []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def run(self):
        self.asked_by.append(threading.current_thread())
        return self._store.run()


def test_unknown_base_versions_cost_the_event_loop_no_query(tmp_path):
    """Nor the store more of them than the sender's pace allows."""

    async def scenario():
        limits = {"burst": 3, "updates_per_minute": 0.1}
        async with serving(tmp_path / "run.db", limits=limits) as (service, client):
            shared = service.collector._store = Shared(service.collector._store)
            for number, told in enumerate([409, 409, 409, 429, 429]):
                sent = body("ann", str(number), base_version=10**14)
                answer = await client.post("/v1/updates", content=sent)
                assert answer.status_code == told
            assert len(shared.asked_by) == 3
            assert threading.current_thread() not in shared.asked_by
            assert (await client.post("/v1/updates", content=body("bob"))).status_code == 202
            assert len(shared.asked_by) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize(("local_lr", "told"), [(9e-31, 422), (1e-312, 422), (1e-30, 202)])
def test_a_rate_of_next_to_nothing_is_refused(tmp_path, local_lr, told):
    async def scenario():
        async with serving(tmp_path / "run.db") as (_, client):
            answer = await client.post("/v1/updates", content=body("ann", local_lr=local_lr))
            assert answer.status_code == told
            if told == 422:
                assert answer.json()["error"] == "malformed"
                assert f"local_lr={local_lr:g}" in answer.json()["message"]
                assert "at least 1e-30" in answer.json()["message"]

    asyncio.run(scenario())
