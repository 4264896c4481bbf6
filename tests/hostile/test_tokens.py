"""Tokens and certificates that are used beyond their end, or by somebody else."""

from __future__ import annotations

import json
import ssl
import threading
import time
from contextlib import closing, suppress
from http.client import HTTPSConnection

import pytest

from anarchic import Layout
from anarchic.server.tokens import add_token, revoke_token
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line, push_head
from tests.chaos.updates import encoded
from tests.server.test_bind_names import DNS, issue, trustme
from tests.server.test_tls import events
from tests.waiting import until

pytestmark = pytest.mark.slow

LARGE = Layout.of({"w": ((1_000_000,), "F32")})  # 4 MB
PIECE = 70_000  # bytes, every 0.1 s: fast enough for the server, and slow enough to be cut


def told(answer):
    return answer.status, answer.json().get("error")


def trickle(port, token, body, found):
    """Send a body slowly until the server answers; count what was sent."""
    with Line(port) as line:
        line.send(push_head(len(body), token) + body[:600_000])
        sent = 600_000
        while sent < len(body):
            line._socket.setblocking(False)
            with suppress(BlockingIOError):
                line._held += line._socket.recv(4096)
            line._socket.settimeout(10)
            if line._held:
                break
            line.send(body[sent : sent + PIECE])
            sent += PIECE
            time.sleep(0.1)
        found.append((*told(line.answer()), sent < len(body)))


@pytest.mark.tried(
    "slow uploads of 4 MB whose token is revoked or replaced, or expires, in the middle",
    before="read to their end, and then refused",
    now="refused within two seconds: 403 `revoked`, 401 `expired`; the rest is not read",
)
def test_an_upload_ends_with_its_token_and_not_with_its_body(tmp_path):
    store, init = str(tmp_path / "run.db"), write_model(tmp_path / "model", LARGE)
    tokens = {name: add_token(store, name) for name in ("ann", "bob", "cleo")}
    with ServerProcess(store, init, tmp_path / "log") as server:
        tokens["dora"] = add_token(store, "dora", expires_s=time.time() + 4)
        time.sleep(1.5)  # until the server knows it
        found = {name: [] for name in tokens}
        bodies = {name: encoded(LARGE, name, "1") for name in tokens}
        threads = [
            threading.Thread(target=trickle, args=(server.port, token, bodies[name], found[name]))
            for name, token in tokens.items()
        ]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        revoke_token(store, "ann")
        add_token(store, "bob")
        for thread in threads:
            thread.join()
        assert found == {
            "ann": [(403, "revoked", True)],
            "bob": [(403, "revoked", True)],
            "cleo": [(202, None, False)],
            "dora": [(401, "expired", True)],
        }
        with Line(server.port) as line:  # who sends all before it reads still gets the answer
            assert told(line.push(bodies["ann"], tokens["ann"])) == (403, "revoked")
        with Line(server.port) as line:
            answer = line.push(bodies["dora"], tokens["dora"])
            assert told(answer) == (401, "expired")
            assert answer.headers["retry-after"] == "60"
        assert server.status()["updates"]["accepted"] == 1


@pytest.mark.tried(
    "a token with the certificate of another worker, or with one whose names are like its own, "
    "with `--bind-names`",
    before="taken: any certificate of the authority went with any token",
    now="403 `certificate_name`; the log names both",
)
def test_a_token_works_only_with_a_certificate_of_its_name(tmp_path):
    authority, store = trustme.CA(), str(tmp_path / "run.db")
    own = tmp_path / "server"
    own.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    authority.cert_pem.write_to_path(tmp_path / "ca")
    token = add_token(store, "ann")
    files = ("--tls-cert", own, "--tls-key", own, "--client-ca", tmp_path / "ca")
    init = write_model(tmp_path / "model")
    server = ServerProcess(store, init, tmp_path / "log", *map(str, files), "--bind-names")
    server.start()

    def asked(certificate, path, token, body=None):
        context = ssl.create_default_context()
        authority.configure_trust(context)
        context.load_cert_chain(certificate)
        line = HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        with closing(line):
            line.request("GET" if body is None else "POST", path, body, headers)
            answer = line.getresponse()
            found = answer.read()
            told = json.loads(found) if answer.status >= 400 else {}
            return answer.status, told.get("error")

    try:
        until(lambda: "listening" in events(server), 30)
        ann = issue(authority, tmp_path / "ann")
        bob = issue(authority, tmp_path / "bob", common=["bob"])
        odd = issue(authority, tmp_path / "odd", common=["ann\0"], others=[DNS("ann.evil")])
        update = encoded(LAYOUT, "ann", "1")
        assert asked(ann, "/v1/model", token) == (200, None)
        assert asked(ann, "/v1/updates", token, update) == (202, None)
        for other in (bob, odd):
            for path, body in (("/v1/model", None), ("/v1/updates", update), ("/v1/status", None)):
                assert asked(other, path, token, body) == (403, "certificate_name")
        assert asked(bob, "/v1/model", "ann.wrong") == (401, "unauthorized")
        server.kill()
        server.start()  # and the same afterwards
        until(lambda: events(server).count("listening") == 2, 30)
        assert asked(ann, "/v1/updates", token, update) == (200, None)
        assert asked(bob, "/v1/model", token) == (403, "certificate_name")
        lines = [json.loads(line) for line in server.text().splitlines() if line[0] == "{"]
        refused = [line for line in lines if line.get("code") == "certificate_name"]
        assert (refused[0]["worker"], refused[0]["certificate"]) == ("ann", "bob")
        assert token.partition(".")[2] not in server.text()
    finally:
        if server.running:
            server.kill()


def test_without_tokens_the_name_in_an_update_is_that_of_the_certificate(tmp_path):
    authority = trustme.CA()
    own = tmp_path / "server"
    own.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    authority.cert_pem.write_to_path(tmp_path / "ca")
    files = ("--tls-cert", own, "--tls-key", own, "--client-ca", tmp_path / "ca")
    place = (str(tmp_path / "run.db"), write_model(tmp_path / "model"), tmp_path / "log")
    server = ServerProcess(*place, *map(str, files), "--bind-names", "--open-enrolment")
    server.start()
    try:
        until(lambda: "listening" in events(server), 30)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        context.load_cert_chain(issue(authority, tmp_path / "bob", common=["bob"]))
        line = HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)
        found = {}
        with closing(line):
            for name in ("ann", "bob"):
                kind = {"Content-Type": "application/octet-stream"}
                line.request("POST", "/v1/updates", encoded(LAYOUT, name, "1"), kind)
                answer = line.getresponse()
                found[name] = (answer.status, json.loads(answer.read()).get("error"))
        assert found == {"ann": (403, "certificate_name"), "bob": (202, None)}
    finally:
        server.kill()
