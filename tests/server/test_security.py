"""Secrets, names and certificates."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import httpx
import pytest
import trustme

from anarchic import Layout
from anarchic.errors import ConfigError
from anarchic.server.settings import Address
from tests.chaos.servers import LAYOUT, ROOT, ServerProcess, write_model
from tests.chaos.talk import Line, Unreachable, push_head
from tests.chaos.updates import encoded
from tests.server.live import BYTES
from tests.server.test_stall import register

pytestmark = pytest.mark.slow  # nearly every test starts a server


@pytest.fixture
def place(tmp_path):
    """(store, init, log) of a server to be started."""
    return str(tmp_path / "run.db"), write_model(tmp_path / "model.safetensors"), tmp_path / "log"


def test_no_secret_is_ever_logged(place):
    tokens = register(place[0], ["ann", "bob"])
    sent = {"ann.wrong-secret-of-ann", "nobody.secret-of-nobody", "Basic-secret", *tokens.values()}
    with ServerProcess(*place) as server, Line(server.port) as line:
        for token in tokens.values():
            assert line.push(encoded(LAYOUT, "ann", "1"), token).status == 202
            line.push(b"nonsense", token)
            line.push(encoded(LAYOUT, "ann", "2", base_version=99), token)
        for token in sent:
            for path in ("/v1/model", "/v1/status", "/nowhere", f"/v1/runs/{token}/models/0"):
                line.get(path, f"Authorization: Bearer {token}", f"Cookie: {token}")
            line.get("/v1/model", f"Authorization: {token}")
            line.push(encoded(LAYOUT, "ann", "3"), token)
            for nonsense in (f"GET / HTTP/1.1\r\nAuthorization {token}\r\n\r\n", f"{token}\r\n"):
                try:
                    line.send(nonsense.encode())
                    line.answer()
                except Unreachable:
                    pass
        assert server.stop() == 0
    text = server.text()
    assert '"event": "http"' in text  # complaints about nonsense are lines like any other
    for token in sent:
        assert token not in text
        assert token.partition(".")[2] not in text or not token.partition(".")[2]


def test_a_wrong_name_and_a_wrong_secret_look_the_same(place):
    tokens = register(place[0], ["ann"])
    wrong = (f"{tokens['ann']}x", "ann.guess", "nobody.guess", "", "ann", f"nobody{tokens['ann']}")
    with ServerProcess(*place) as server, Line(server.port) as line:
        answers = {
            (answer.status, answer.body)
            for token in wrong
            for answer in (
                line.push(encoded(LAYOUT, "ann", "1"), token),
                line.get("/v1/model", f"Authorization: Bearer {token}"),
            )
        }
        assert [status for status, _ in answers] == [401]
        assert line.get("/v1/model").status == 401
        assert server.status()["updates"]["accepted"] == 0


def test_open_enrolment_protects_names_that_have_tokens(place):
    tokens = register(place[0], ["ann"])
    with ServerProcess(*place, "--open-enrolment") as server, Line(server.port) as line:
        refused = line.push(encoded(LAYOUT, "ann", "1"))
        assert (refused.status, refused.json()["error"]) == (403, "name_taken")
        assert line.push(encoded(LAYOUT, "ann", "1"), tokens["ann"]).status == 202
        assert line.push(encoded(LAYOUT, "bob", "1")).status == 202
        # Under a token, what the update calls itself does not matter.
        assert line.push(encoded(LAYOUT, "bob", "2"), tokens["ann"]).status == 202
        add = ("-m", "anarchic", "token", "add", "bob", "--store", place[0])
        subprocess.run([sys.executable, *add], check=True, capture_output=True, cwd=ROOT)
        until = time.monotonic() + 5
        while line.push(encoded(LAYOUT, "bob", "1")).status == 200:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert line.push(encoded(LAYOUT, "bob", "1")).status == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_public_address_without_tls_is_refused(host):
    with pytest.raises(ConfigError, match="without TLS"):
        Address(host=host)
    assert Address(host=host, insecure=True).host == host


def test_the_command_refuses_a_public_address_too(place):
    words = ("serve", "--store", place[0], "--init", place[1], "--host", "0.0.0.0")
    found = subprocess.run(
        [sys.executable, "-m", "anarchic", *words, "--open-enrolment"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert found.returncode in (1, 2)
    assert "without TLS" in " ".join((found.stderr + found.stdout).split())


@pytest.fixture
def certificates(tmp_path):
    """A certificate of the server, and the authority that signs those of workers."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(tmp_path / "key")
    server.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    authority.cert_pem.write_to_path(tmp_path / "ca")
    return authority, ("--tls-cert", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "key"))


def _context(authority, *, own=None):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if own is not None:
        own.issue_cert("worker@example.org").configure_cert(context)
    return context


def _await_tls(server, client):
    until = time.monotonic() + 30
    while True:
        try:
            return client.get("/healthz")
        except httpx.ConnectError:
            assert server.running, server.text()
            assert time.monotonic() < until
            time.sleep(0.05)


def test_tls_and_mutual_tls(place, certificates, tmp_path):
    authority, words = certificates
    words = (*words, "--client-ca", str(tmp_path / "ca"), "--open-enrolment")
    server = ServerProcess(*place, *words)
    server.start()
    url = f"https://127.0.0.1:{server.port}"
    try:
        with httpx.Client(base_url=url, verify=_context(authority, own=authority)) as client:
            assert _await_tls(server, client).status_code == 200
            answer = client.post("/v1/updates", content=encoded(LAYOUT, "ann", "1"), headers=BYTES)
            assert answer.status_code == 202
        stranger = trustme.CA()
        for context in (_context(authority), _context(authority, own=stranger)):
            with (
                httpx.Client(base_url=url, verify=context) as client,
                pytest.raises(httpx.HTTPError),
            ):
                client.get("/healthz")
        with Line(server.port) as line:
            line.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")  # not TLS at all
            assert line.hung_up(10)
        assert server.stop() == 0
        assert "Traceback" not in server.text()
    finally:
        if server.running:
            server.kill()


LARGE = Layout.of({"weight": ((4_000_000,), "F32")})


def test_models_that_are_not_read_do_not_fill_the_memory(certificates, tmp_path):
    """Under TLS what was handed over is encrypted at once, and nobody else's can be used again."""
    authority, words = certificates
    init = write_model(tmp_path / "model", LARGE)
    server = ServerProcess(
        str(tmp_path / "run.db"), init, tmp_path / "log", *words, "--open-enrolment"
    )
    server.start()
    try:
        context = _context(authority)
        url = f"https://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, verify=context) as client, ExitStack() as lines:
            _await_tls(server, client)
            assert len(client.get("/v1/model").content) > 16_000_000
            before = server.rss_mb()
            for _ in range(20):
                plain = socket.create_connection(("127.0.0.1", server.port))
                line = lines.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
                line.sendall(b"GET /v1/model HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(1.0)
            assert client.get("/healthz").status_code == 200
            assert server.rss_mb() < before + 100  # of 320
    finally:
        server.kill()


def test_pulls_per_worker_are_limited(tmp_path):
    init, store = write_model(tmp_path / "model", LARGE), str(tmp_path / "run.db")
    tokens = register(store, ["ann", "bob"])
    with ServerProcess(store, init, tmp_path / "log") as server, ExitStack() as lines:

        def pull(worker):
            line = lines.enter_context(Line(server.port))
            token = tokens[worker]
            line.send(f"GET /v1/model HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            return line

        pulling = [pull("ann") for _ in range(16)]
        time.sleep(0.5)
        refused = pull("ann").answer()
        assert (refused.status, refused.json()["error"]) == (503, "busy")
        assert pull("bob").answer().status == 200
        assert pulling[0].answer().status == 200  # whole
        time.sleep(0.1)
        assert pull("ann").answer().status == 200
        pulling[1].close()
        time.sleep(0.1)
        assert pull("ann").answer().status == 200


def test_tls_alone_needs_no_certificate_of_the_worker(place, certificates):
    authority, words = certificates
    server = ServerProcess(*place, *words, "--open-enrolment", "--host", "127.0.0.1")
    server.start()
    try:
        url = f"https://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, verify=_context(authority)) as client:
            assert _await_tls(server, client).status_code == 200
        with httpx.Client(base_url=url) as client, pytest.raises(httpx.ConnectError):
            client.get("/healthz")  # an authority that it does not know
    finally:
        server.kill()


def test_a_refusal_reaches_a_client_that_is_still_sending(place):
    """Closed at once, the connection would be reset, and the worker would try for ever."""
    register(place[0], ["ann"])
    with ServerProcess(*place) as server, Line(server.port) as line:
        for _ in range(3):
            line.send(push_head(10_000_000, "ann.wrong"))
            time.sleep(0.1)
            line.send(b"x" * 10_000_000)
            assert line.answer().status == 401


def test_headers_behind_a_body_do_not_fill_the_memory(place):
    """From anybody: no token is looked at before the answer."""
    register(place[0], ["ann"])
    with ServerProcess(*place) as server, Line(server.port) as line:
        before = server.rss_mb()
        line.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        for _ in range(200):
            line.send(b"a: b\r\n" * 5_000)
        assert line.answer().status == 411
        assert server.rss_mb() < before + 30  # of a million headers
        assert server.status()["version"] == 0


def test_a_flood_is_refused_before_it_is_read(place):
    """Checking an update costs time; so one who sends too many is told before."""
    tokens = register(place[0], ["ann", "bob"])
    with (
        ServerProcess(*place, "--updates-per-minute", "1") as server,
        Line(server.port) as line,
    ):
        told = [line.push(b"nonsense", tokens["ann"]).status for _ in range(101)]
        assert told == [422] * 100 + [429]
        line.send(push_head(1_000, tokens["ann"]))  # and none of them
        assert line.answer().status == 429
        with Line(server.port) as other:
            told = [other.push(encoded(LAYOUT, "bob", "1"), tokens["bob"]) for _ in range(101)]
        # Each was counted once.
        assert [answer.status for answer in told] == [202] + [200] * 99 + [429]


@pytest.mark.parametrize(("words", "told"), [((), 408), (("--least-rate", "5000"), 202)])
def test_a_slow_connection_delivers_where_the_least_rate_allows_it(tmp_path, words, told):
    layout = Layout.of({"weight": ((100_000,), "F32")})
    init = write_model(tmp_path / "model", layout)
    place = (str(tmp_path / "run.db"), init, tmp_path / "log", "--open-enrolment")
    body = encoded(layout, "ann", "1")
    with ServerProcess(*place, *words) as server, Line(server.port) as line:
        line.send(push_head(len(body)) + body[:265_000])
        with suppress(Unreachable):
            for at in range(265_000, len(body), 4_000):  # 40 kB a second
                time.sleep(0.1)
                line.send(body[at : at + 4_000])
        assert line.answer().status == told


def test_a_server_with_listeners_stops_at_once(place):
    with ServerProcess(*place, "--open-enrolment") as server, Line(server.port) as line:
        line.send(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 10


def test_streams_of_events_cannot_use_up_the_connections(place):
    lines = []
    with ServerProcess(*place, "--open-enrolment") as server:
        try:
            for _ in range(256):
                lines.append(Line(server.port))
                lines[-1].send(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.5)
            with Line(server.port) as line:
                refused = line.get("/v1/events")
                assert (refused.status, refused.json()["error"]) == (503, "busy")
                assert line.push(encoded(LAYOUT, "ann", "1")).status == 202
        finally:
            for line in lines:
                line.close()
        time.sleep(0.5)
        # It would be an answer without a body, and without an end.
        assert httpx.head(f"http://127.0.0.1:{server.port}/v1/events").status_code == 405


def test_a_file_has_one_server_from_its_first_moment_on(place):
    """Begun, refused to a second server, and begun again after a kill."""
    with ServerProcess(*place, "--open-enrolment") as server:
        second = ServerProcess(*place, "--open-enrolment")
        second.start()
        assert second.wait() != 0
        assert "Another server has this store open" in " ".join(second.text().split())
        server.kill()
        server.start()
        server.await_ready()
        with Line(server.port) as line:
            assert line.push(encoded(LAYOUT, "ann", "1")).status == 202
