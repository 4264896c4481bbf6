"""Commands over HTTP, and what other servers and listeners hear of them."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from anarchic.server.store import open_store
from anarchic.server.tokens import add_token
from tests.server.live import serving, until
from tests.server.make import begun, body

JSON = {"content-type": "application/json"}


def tokens(path):
    with closing(open_store(path)) as store:
        begun(store, m=1)
    return {
        name: {"authorization": f"Bearer {add_token(path, name, rights=rights)}"}
        for name, rights in (("ann", "pull,push"), ("olga", "operate"))
    }


@pytest.mark.slow
def test_operators_steer_over_http_and_nobody_else(tmp_path):
    who = tokens(tmp_path / "run.db")

    async def scenario():
        async with serving(tmp_path / "run.db", open_enrolment=False) as (service, client):

            async def give(sent, name="olga"):
                return await client.post(
                    "/v1/commands", json=sent, headers=JSON | who.get(name, {})
                )

            assert (await give({"kind": "pause"}, "ann")).status_code == 403
            assert (await give({"kind": "pause"}, "")).status_code == 401
            assert (await client.get("/v1/commands")).status_code == 401
            answer = await give({"kind": "pause"})
            assert (answer.status_code, answer.json()["outcome"]) == (202, "waiting")
            await until(lambda: service.status()["state"] == "paused")
            sent = {"content": body("ann"), "headers": who["ann"]}
            answer = await client.post("/v1/updates", **sent)
            assert (answer.status_code, answer.json()["error"]) == (503, "paused")
            assert (await give({"kind": "resume"})).status_code == 202
            await until(lambda: service.status()["state"] == "running")
            wrong = [[], {"kind": 3}, {"kind": "pause", "arguments": []}, {"kind": "pasue"}]
            for kind, arguments in (
                ("set", {"n": 1}),
                ("set", {"m": {}}),
                ("pause", {"a": 1}),
                ("rollback", {"to": True}),
                ("rollback", {"without": ["ann"]}),
            ):
                wrong.append({"kind": kind, "arguments": arguments})
            for each in wrong:
                assert (await give(each)).status_code == 400, each
            found = (await client.get("/v1/commands", headers=who["olga"])).json()["commands"]
            return [(c["kind"], c["issued_by"], c["outcome"]) for c in found]

    found = asyncio.run(scenario())
    assert found == [("pause", "olga", "applied"), ("resume", "olga", "applied")]


def test_what_is_no_command_is_refused(tmp_path):
    who = tokens(tmp_path / "run.db")["olga"]

    async def scenario():
        async with serving(tmp_path / "run.db", open_enrolment=False) as (_, client):
            found = []
            for content, kind in (
                (b"{", "application/json"),
                (b"[" * 60_000, "application/json"),
                (b" " * (1 << 17), "application/json"),
                (b'{"kind": "pause"}', "text/plain"),
            ):
                headers = {**who, "content-type": kind}
                answer = await client.post("/v1/commands", content=content, headers=headers)
                found.append((answer.status_code, answer.json()["error"]))
            return found

    assert asyncio.run(scenario()) == [
        (400, "malformed"),
        (400, "malformed"),
        (413, "too_large"),
        (415, "wrong_type"),
    ]


@pytest.mark.slow
def test_listeners_hear_of_commands(tmp_path):
    who = tokens(tmp_path / "run.db")["olga"]

    async def scenario():
        async with serving(tmp_path / "run.db") as (service, client):
            seen = service.published.touched
            headers = {**who, "content-type": "application/json"}
            waiting = asyncio.create_task(service.published.changed(0, 5.0, seen))
            await client.post("/v1/commands", json={"kind": "pause"}, headers=headers)
            return await waiting, service.status()["state"]

    assert asyncio.run(scenario()) == (True, "paused")
