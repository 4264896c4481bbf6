"""The live page's routes: what they send, to whom, and under which headers."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from dataclasses import replace
from importlib.util import find_spec

import httpx
import pytest

from anarchic.page import stream
from anarchic.page.assets import HEADERS, names
from anarchic.server.accounts import accounts, new_token, put_account
from anarchic.server.app import make_admin_app, make_app
from anarchic.server.origin import Origins
from anarchic.server.records import Account
from anarchic.server.sending import COPIES, PIECE
from tests.server.hosted import begin_run, serving_runs
from tests.server.live import serving, until
from tests.server.make import body

ANYBODY = Origins(any_host=True)
OPERATOR, WORKER = {"authorization": "Bearer olga.x"}, {"authorization": "Bearer ann.x"}


def reached(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


def add_tokens(service):
    for name, rights in {"olga": "operate", "ann": "pull,push"}.items():
        token = hashlib.sha256(f"{name}.x".encode()).digest()
        service.access._accounts[name] = Account(name, token, revoked=False, rights=rights)


def run(scenario, tmp_path, **options):
    async def served():
        async with serving(tmp_path / "run.db", rules={"m": 2}, **options) as (service, client):
            add_tokens(service)
            await scenario(service, client)

    asyncio.run(served())


def test_every_file_comes_with_the_security_headers_and_is_not_sent_twice(tmp_path):
    async def scenario(service, client):
        for path in ("/", *(f"/page/{name}" for name in names())):
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            again = await client.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")

    run(scenario, tmp_path)


needs_plotly = pytest.mark.skipif(find_spec("plotly") is None, reason="plotly is not installed")


@needs_plotly
def test_the_large_script_is_compressed_and_sent_in_pieces(tmp_path):
    async def scenario(service, client):
        sent = []

        async def send(message):
            sent.append(message)

        await make_app(service)(scope_of({}, "/page/plotly.js"), None, send)
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        assert {name: told[name] for name in HEADERS} == HEADERS
        assert told["content-encoding"] == "gzip"
        assert int(told["content-length"]) < 2_000_000
        pieces = [message["body"] for message in sent[1:]]
        assert max(map(len, pieces)) == PIECE
        assert len(gzip.decompress(b"".join(pieces))) > 3_000_000

    run(scenario, tmp_path)


@needs_plotly
def test_an_address_gets_few_copies_of_the_large_script(tmp_path, monkeypatch):
    monkeypatch.setattr("anarchic.server.sending.PAUSE_S", 0.0)

    async def scenario(service, client):
        answers = [await client.get("/page/plotly.js") for _ in range(COPIES + 1)]
        assert [answer.status_code for answer in answers] == [200] * COPIES + [429]
        assert int(answers[-1].headers["retry-after"]) > 1
        known = {"if-none-match": answers[0].headers["etag"]}
        assert (await client.get("/page/plotly.js", headers=known)).status_code == 304
        assert (await client.get("/page/app.js")).status_code == 200
        elsewhere = httpx.ASGITransport(make_app(service), client=("127.0.0.9", 1))
        async with httpx.AsyncClient(transport=elsewhere, base_url="http://server") as other:
            assert (await other.get("/page/plotly.js")).status_code == 200

    run(scenario, tmp_path)


def test_refusals_have_the_security_headers_too(tmp_path):
    async def scenario(service, client):
        asked = ["/nothing", "/page/a/b", "/page/no.js", "/v1/live"]
        answers = [await client.get(path) for path in asked]
        answers += [await client.post(path) for path in ("/", "/page/app.js")]
        named = make_admin_app(service, Origins("127.0.0.1", any_host=False), tokens=True)
        async with reached(named) as other:
            answers.append(await other.get("/", headers={"host": "evil.example"}))
        assert [answer.status_code for answer in answers] == [404, 404, 404, 401, 405, 405, 421]
        for answer in answers:
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS

    run(scenario, tmp_path)


def test_refusals_of_a_server_of_several_runs_have_them(tmp_path):
    begin_run(str(tmp_path), "one", m=2)

    async def scenario():
        async with serving_runs(str(tmp_path)) as (_, client):
            paths = ("/nothing", "/page/no.js", "/v1/runs/two/live", "/v1/runs/one/live")
            answers = [await client.get(path) for path in paths] + [await client.post("/")]
            assert [answer.status_code for answer in answers] == [404, 404, 404, 401, 405]
            for answer in answers:
                assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS

    asyncio.run(scenario())


def test_there_are_no_other_files(tmp_path):
    async def scenario(service, client):
        for path in ("/page/assets.py", "/page/%2e%2e%2fassets.py", "/page/", "/page/nothing.js"):
            assert (await client.get(path)).status_code == 404, path

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 401), ({"authorization": "Bearer a.b"}, 401), (WORKER, 403)]
)
def test_the_stream_is_for_operators(tmp_path, headers, status):
    async def scenario(service, client):
        assert (await client.get("/v1/live", headers=headers)).status_code == status
        assert (await client.get("/v1/live?token=olga.x")).status_code == 401  # never in a URL
        assert service.pictures.viewers == 0

    run(scenario, tmp_path)


def scope_of(headers, path="/v1/live"):
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": given, "client": ("127.0.0.1", 1), "scheme": "http",
        "server": ("server", 80), "http_version": "1.1", "asgi": {"version": "3.0"},
    }  # fmt: skip


async def first_event(app, headers, path="/v1/live"):
    """Ask the app as a server would, and stop after the first picture."""
    sent, told = [], asyncio.Event()

    async def receive():
        await told.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if b"data: " in message.get("body", b""):
            told.set()

    await asyncio.wait_for(app(scope_of(headers, path), receive, send), 10)
    text = b"".join(message.get("body", b"") for message in sent).decode()
    data = next((line[6:] for line in text.splitlines() if line.startswith("data: ")), None)
    return sent[0], None if data is None else json.loads(data)


def test_an_operator_is_sent_a_picture_and_the_stream_is_counted(tmp_path):
    async def scenario(service, client):
        await client.post("/v1/updates", content=body("ann", "1"), headers=WORKER)
        start, found = await first_event(make_app(service), OPERATOR)
        assert start["status"] == 200
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        assert told["content-type"].startswith("text/event-stream")
        assert told["cache-control"] == "no-store"
        assert told["content-security-policy"] == HEADERS["content-security-policy"]
        assert found["head"]["kind"] == "server"
        assert found["head"]["buffered"] == 1
        assert service.pictures.viewers == 0

    run(scenario, tmp_path)


def test_on_the_admin_port_of_this_machine_no_token_is_needed_to_look(tmp_path):
    async def scenario(service, client):
        app = make_admin_app(service, ANYBODY, tokens=False)
        start, found = await first_event(app, {})
        assert (start["status"], found["head"]["run"]) == (200, service.run)
        async with reached(app) as admin:
            assert (await admin.get("/")).status_code == 200
            asked = {"json": {"kind": "pause"}}
            assert (await admin.post("/v1/commands", **asked)).status_code == 401
            assert (await admin.post("/v1/revocations", json={"worker": "a"})).status_code == 401
        guarded = make_admin_app(service, ANYBODY, tokens=True)
        assert (await first_event(guarded, {}))[0]["status"] == 401

    run(scenario, tmp_path)


def test_a_page_of_another_server_sees_nothing(tmp_path):
    async def scenario(service, client):
        named = Origins("127.0.0.1", any_host=False)
        app = make_admin_app(service, named, tokens=False)
        async with reached(app) as admin:
            for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
                answer = await admin.get("/v1/live", headers=headers)
                assert answer.status_code in (403, 421)
                assert (await admin.get("/", headers=headers)).status_code in (403, 421)

    run(scenario, tmp_path)


def test_each_of_several_runs_has_a_stream_and_they_share_the_page(tmp_path):
    for name in ("one", "two"):
        begin_run(str(tmp_path), name, m=2)

    async def scenario():
        async with serving_runs(str(tmp_path)) as (runs, client):
            assert (await client.get("/")).status_code == 200
            assert (await client.get("/page/app.js")).headers["etag"]
            assert (await client.get("/page/other.js")).status_code == 404
            assert (await client.get("/v1/runs/one/live")).status_code == 401
            two = runs.find("two").service
            add_tokens(two)
            await client.post("/v1/runs/two/updates", content=body("zoe", "1"))
            path = "/v1/runs/two/live"
            start, found = await first_event(client._transport.app, OPERATOR, path)
            assert (start["status"], found["head"]["name"]) == (200, "two")
            assert (found["head"]["run"], found["head"]["buffered"]) == (two.run, 1)
            other = await client.get("/v1/runs/one/live", headers=OPERATOR)
            assert other.status_code == 401  # its token is for the other run

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "change",
    [{"revoked": True}, {"expires_s": 1.0}, {"token_hash": b"another"}, {"rights": "pull,push"}],
    ids=str,
)
def test_an_open_stream_ends_when_its_operator_may_no_longer_look(tmp_path, monkeypatch, change):
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.02)

    async def scenario(service, client):
        sent, first = [], asyncio.Event()

        async def receive():
            await asyncio.Event().wait()  # it never hangs up

        async def send(message):
            sent.append(message.get("body", b""))
            if b"data: " in sent[-1]:
                first.set()

        asked = asyncio.create_task(make_app(service)(scope_of(OPERATOR), receive, send))
        await asyncio.wait_for(first.wait(), 5)
        accounts = service.access._accounts
        accounts["olga"] = replace(accounts["olga"], **change)
        seen = len(sent)
        await asyncio.wait_for(asked, 5)
        assert b"".join(sent[seen:]) == b""  # nothing more, not even a sign of life
        assert service.pictures.viewers == 0

    run(scenario, tmp_path)


@pytest.mark.slow
def test_an_operator_revokes_a_worker_from_the_page(tmp_path):
    async def scenario(service, client):
        token, account = new_token("eva")
        put_account(service.store, account)
        service.access.read()
        add_tokens(service)
        proof = {"authorization": f"Bearer {token}"}
        sent = {"content": body("eva", "1"), "headers": proof}
        assert (await client.post("/v1/updates", **sent)).status_code == 202

        async def revoke(headers, **asked):
            return await client.post("/v1/revocations", json=asked, headers=headers)

        json_type = {"content-type": "application/json"}
        assert (await revoke({**proof, **json_type}, worker="eva")).status_code == 403
        assert (await revoke({**OPERATOR, **json_type}, worker="nobody")).status_code == 400
        assert (await revoke({**OPERATOR, **json_type}, worker=3)).status_code == 400
        assert not accounts(service.store)["eva"].revoked
        done = await revoke({**OPERATOR, **json_type}, worker="eva")
        assert done.json() == {"worker": "eva", "revoked": True}
        assert accounts(service.store)["eva"].revoked
        await until(lambda: "eva" in service.access.revoked)
        sent["content"] = body("eva", "2")
        assert (await client.post("/v1/updates", **sent)).json()["error"] == "revoked"

    run(scenario, tmp_path)
