"""Who may keep a model on its way: anybody only where anybody may have it."""

from __future__ import annotations

import asyncio

import pytest

from anarchic.server.access import new_token
from anarchic.server.store import open_store
from tests.server.live import serving
from tests.server.make import begun


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
    store.put_account(account)
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

    newest, version = asyncio.run(scenario())
    assert newest == f"{kind}, no-cache"
    assert version == f"{kind}, max-age=31536000, immutable"
