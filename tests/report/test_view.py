from __future__ import annotations

import asyncio
import json
import socket

import httpx
import pytest
from starlette.requests import Request

from anarchic.errors import ConfigError
from anarchic.page.assets import HEADERS
from anarchic.page.stream import Stream
from anarchic.report.picture import pictures
from anarchic.report.view import HOST, listening, view_app
from tests.report.make import make_run


def asked(app, path, **headers):
    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def test_the_page_comes_with_its_headers_and_to_this_machine_alone(tmp_path):
    with pictures(make_run(tmp_path / "one")) as make:
        app = view_app(make)
        answer = asked(app, "/")
        assert answer.status_code == 200
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert asked(app, "/page/app.js").status_code == 200
        for path in ("/page/other.js", "/v1/commands"):  # it is read-only
            answer = asked(app, path)
            assert answer.status_code == 404
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        for path in ("/", "/v1/live"):
            assert asked(app, path, host="evil.example").status_code == 421
            assert asked(app, path, origin="https://evil.example").status_code == 403
    assert HOST == "127.0.0.1"


def test_the_stream_has_the_picture(tmp_path):
    with pictures(make_run(tmp_path / "one")) as make:

        async def first():
            events = Stream(make).watch()
            return [event async for event in aside(events)]

        async def aside(events):
            async for event in events:
                if b"data: " in event:
                    yield json.loads(event.split(b"data: ")[1])
                    return

        (found,) = asyncio.run(first())
    assert found["head"]["kind"] == "run"


def test_a_port_that_is_taken_is_told():
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Cannot listen on port {port}"):
            listening(port)


def test_a_picture_that_cannot_be_made_is_told_on_the_terminal(capsys):
    def make():
        raise ValueError("the run is damaged")

    async def scenario():
        (live,) = [route for route in view_app(make).routes if route.path == "/v1/live"]
        headers = [(b"host", b"127.0.0.1")]
        asked = {"type": "http", "method": "GET", "path": "/v1/live", "headers": headers}
        events = (await live.endpoint(Request(asked))).body_iterator
        assert b"failure" in await anext(events)
        await events.aclose()

    asyncio.run(scenario())
    assert "cannot be made now: the run is damaged" in capsys.readouterr().err
