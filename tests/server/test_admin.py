"""The listener for operators: what it shows, to whom, and how it starts and stops."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from anarchic.errors import ConfigError
from anarchic.server.app import PUBLIC_STATUS, make_admin_app, make_app
from anarchic.server.origin import Origins, admin_origins_of
from anarchic.server.records import Account
from anarchic.server.serve import ADMIN_CONNECTIONS
from anarchic.server.service import Service
from anarchic.server.settings import Address, ServerSettings
from anarchic.server.store import open_store
from tests.chaos.servers import LAYOUT, ServerProcess, free_port, write_model
from tests.chaos.talk import Line, push_head
from tests.chaos.updates import encoded
from tests.server.live import serving
from tests.server.make import begun
from tests.waiting import until

ANYBODY = Origins(any_host=True)
OPERATOR, WORKER = {"authorization": "Bearer olga.x"}, {"authorization": "Bearer ann.x"}


def add_tokens(service):
    for name, rights in {"olga": "operate", "ann": "pull,push"}.items():
        token = hashlib.sha256(f"{name}.x".encode()).digest()
        service.access._accounts[name] = Account(name, token, revoked=False, rights=rights)


def reached(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


def answers(app, *paths, **headers):
    """Status codes of an app, by path."""

    async def ask():
        async with reached(app) as client:
            return [(await client.get(path, headers=headers)).status_code for path in paths]

    return ask()


SEEN = ("/metrics", "/v1/status", "/v1/workers")
PROBED = ("/healthz", "/readyz")


def test_operators_see_metrics_and_status_and_nobody_else_where_tokens_are_needed(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (service, _):
            add_tokens(service)
            admin = make_admin_app(service, ANYBODY, tokens=True)
            assert await answers(admin, *SEEN, **OPERATOR) == [200] * len(SEEN)
            assert await answers(admin, *SEEN, **WORKER) == [403] * len(SEEN)
            assert await answers(admin, *SEEN) == [401] * len(SEEN)
            assert await answers(admin, *PROBED) == [200, 200]
            assert await answers(admin, "/v1/model", "/v1/updates", **OPERATOR) == [404, 404]
            open_to_all = make_admin_app(service, ANYBODY, tokens=False)
            assert await answers(open_to_all, *SEEN, *PROBED) == [200] * 5
            assert await answers(open_to_all, "/v1/commands") == [401]  # nobody steers without
            assert await answers(open_to_all, "/v1/commands", **OPERATOR) == [200]

    asyncio.run(scenario())


def test_workers_see_what_they_need_of_the_status_where_the_rest_is_for_operators(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (service, _):
            add_tokens(service)
            app = make_app(service, ANYBODY, brief=True)
            assert await answers(app, "/metrics") == [401]
            assert await answers(app, "/metrics", **WORKER) == [403]
            assert await answers(app, "/metrics", *PROBED, **OPERATOR) == [200] * 3
            async with reached(app) as client:
                for headers in ({}, WORKER):
                    told = (await client.get("/v1/status", headers=headers)).json()
                    assert tuple(told) == PUBLIC_STATUS
                told = (await client.get("/v1/status", headers=OPERATOR)).json()
                assert told == service.status()

    asyncio.run(scenario())


def test_before_the_run_is_loaded_probes_say_so(tmp_path):
    store = open_store(tmp_path / "run.db")
    begun(store)
    service = Service(store, ServerSettings(open_enrolment=True), lambda event, **facts: None)
    admin = make_admin_app(service, ANYBODY, tokens=False)
    found = asyncio.run(answers(admin, "/readyz", "/v1/status", "/metrics"))
    assert found == [503, 503, 200]
    store.close()


def test_a_web_page_cannot_read_what_needs_no_token(tmp_path):
    async def scenario():
        async with serving(tmp_path / "run.db") as (service, _):
            here = admin_origins_of(Address(port=1), tokens=False)
            admin = make_admin_app(service, here, tokens=False)
            assert await answers(admin, *SEEN, host="evil.example") == [421] * len(SEEN)
            assert await answers(admin, *SEEN, origin="http://evil.example") == [403] * len(SEEN)
            assert await answers(admin, *PROBED, host="any.example") == [200, 200]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"admin_tokens": True}, "--admin-tokens is for --admin-port"),
        ({"admin_host": "0.0.0.0"}, "--admin-host is for --admin-port"),
        ({"admin_port": 0}, "from 1 to 65535 other than that of --port, got 0"),
        ({"admin_port": 8780}, "other than that of --port, got 8780"),
        ({"admin_port": 9, "admin_tls": True}, "--admin-tls needs a certificate"),
        ({"admin_port": 9, "admin_host": "0.0.0.0"}, "0.0.0.0 can be reached from elsewhere"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        Address(**given)


def test_the_address_says_who_needs_tokens_and_tls(tmp_path):
    (tmp_path / "pem").touch()
    tls = {"tls_cert": tmp_path / "pem", "tls_key": tmp_path / "pem"}
    mutual = {**tls, "client_ca": tmp_path / "pem", "admin_port": 9}
    here, there = Address(**mutual), Address(**mutual, admin_host="::")
    assert not Address().brief
    assert here.brief
    assert not Address(**mutual, public_metrics=True).brief
    assert Address(public_metrics=False).brief
    assert (here.admin_needs_tokens, there.admin_needs_tokens) == (False, True)
    assert Address(**mutual, admin_tokens=True).admin_needs_tokens
    assert (here.admin.tls_cert, there.admin.tls_cert) == (None, tmp_path / "pem")
    assert Address(**mutual, admin_tls=True).admin.tls_cert == tmp_path / "pem"
    assert (here.admin.client_ca, there.admin.client_ca) == (None, None)
    with pytest.raises(ConfigError, match=":: can be reached from elsewhere"):
        Address(**mutual, admin_host="::", admin_tls=False)


def begin(tmp_path, *words):
    """A server process with a port for operators, which is returned too."""
    port, init = free_port(), write_model(tmp_path / "model")
    options = ("--open-enrolment", "--admin-port", str(port), *map(str, words))
    return ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *options), port


def events(server, name):
    lines = [json.loads(line) for line in server.text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def admin_says(port):
    with Line(port, 2.0) as line:
        answer = line.get("/readyz")
        return answer.status, answer.json().get("message")


@pytest.mark.slow
def test_probes_need_no_certificate_where_workers_do_and_a_hangup_renews_theirs_too(tmp_path):
    trustme = pytest.importorskip("trustme")
    authority, own = trustme.CA(), tmp_path / "own"

    def issue():
        pem = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
        own.write_bytes(pem.bytes())

    issue()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    tls = ("--tls-cert", own, "--tls-key", own, "--client-ca", tmp_path / "ca", "--admin-tls")
    server, port = begin(tmp_path, *tls)
    context = ssl.create_default_context(cafile=tmp_path / "ca")
    server.start()
    try:
        until(lambda: len(events(server, "listening")) == 2)
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context) as client:
            assert client.get("/readyz").status_code == 200
            assert "anarchic_certificate_expires_seconds" in client.get("/metrics").text
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"https://127.0.0.1:{server.port}/readyz", verify=context)
        first = ssl.get_server_certificate(("127.0.0.1", port))
        issue()
        server.send(signal.SIGHUP)
        until(lambda: events(server, "certificate_loaded"))
        assert ssl.get_server_certificate(("127.0.0.1", port)) != first
        assert server.stop() == 0
    finally:
        if server.running:
            server.kill()


@pytest.mark.slow
def test_operators_are_answered_until_the_server_has_stopped_and_cannot_fill_it(tmp_path):
    server, port = begin(tmp_path)

    def files():
        return len(os.listdir(Path("/proc") / str(server.pid) / "fd"))

    with server, ExitStack() as stack:
        # The log is written by a thread of its own.
        until(lambda: len(events(server, "listening")) == 2)
        told = [(line["port"], line.get("admin")) for line in events(server, "listening")]
        assert told == [(server.port, None), (port, True)]
        before = files()
        for _ in range(4 * ADMIN_CONNECTIONS):
            line = stack.enter_context(Line(port))
            line.send(b"GET /metrics HTTP/1.1\r\n")  # the rest never comes
        with Line(server.port) as worker, Line(port) as operator:
            assert worker.push(encoded(LAYOUT, "ann", "1")).status == 202
            assert operator.get("/metrics").status == 200
        until(lambda: files() <= before + ADMIN_CONNECTIONS, 5.0)  # heads may take 10 s
        update, worker = encoded(LAYOUT, "ann", "2"), stack.enter_context(Line(server.port))
        worker.send(push_head(len(update)) + update[:100])
        assert admin_says(port) == (200, None)
        server.send(signal.SIGTERM)  # the request in progress is waited for
        until(lambda: admin_says(port) == (503, "The server is stopping."))
        worker.send(update[100:])
        assert worker.answer().status in (202, 503)
        assert server.wait() == 0
    assert "Traceback" not in server.text()


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(port=free_port(), admin_port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match="Choose another --admin-port or --admin-host"):
            address.check_free()
