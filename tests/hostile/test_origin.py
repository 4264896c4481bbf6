"""What a browser sends on behalf of a web page of somebody else."""

from __future__ import annotations

import pytest

from anarchic.errors import ConfigError
from anarchic.server.origin import Origins, check_type, is_local, origins_of
from anarchic.server.refusals import Refusal
from anarchic.server.settings import Address, ServerSettings
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Answer, Line
from tests.chaos.updates import encoded
from tests.server.test_stall import register

PAGE = "http://page.example"
BYTES = "Content-Type: application/octet-stream"


def push(line: Line, id: str, *headers: str) -> tuple[int, str | None]:
    body = encoded(LAYOUT, "ann", id)
    lines = ["POST /v1/updates HTTP/1.1", f"Content-Length: {len(body)}", *headers, "", ""]
    line.send("\r\n".join(lines).encode() + body)
    return told(line.answer())


def pull(line: Line, path: str, *headers: str) -> tuple[int, str | None]:
    line.send("\r\n".join([f"GET {path} HTTP/1.1", *headers, "", ""]).encode())
    return told(line.answer())


def told(answer: Answer) -> tuple[int, str | None]:
    return answer.status, answer.json()["error"] if answer.status >= 400 else None


@pytest.mark.slow
@pytest.mark.tried(
    "a web page of another origin, or of a name made to lead to this machine, that pushes "
    "`text/plain` and reads, with open enrolment on loopback",
    before="202 and 200",
    now="415 `wrong_type`, 403 `foreign_origin`, 421 `wrong_host`",
)
def test_a_web_page_can_neither_push_nor_read(tmp_path):
    place = (str(tmp_path / "run.db"), write_model(tmp_path / "model"), tmp_path / "log")
    words = ("--open-enrolment", "--host-name", "fl.example, other.example")
    with ServerProcess(*place, *words) as server, Line(server.port) as line:
        own = f"127.0.0.1:{server.port}"
        host, page = f"Host: {own}", f"Origin: {PAGE}"
        # As browsers send forms and plain requests, without asking first.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert push(line, "1", host, f"Content-Type: {kind}") == (415, "wrong_type")
        assert push(line, "1", host) == (415, "wrong_type")
        assert push(line, "1", host, BYTES, page) == (403, "foreign_origin")
        assert push(line, "1", host, BYTES, "Origin: null") == (403, "foreign_origin")
        other_port = f"Origin: http://127.0.0.1:{server.port + 1}"
        assert push(line, "1", host, BYTES, other_port) == (403, "foreign_origin")
        rebound = f"Host: page.example:{server.port}"
        assert push(line, "1", rebound, BYTES, f"Origin: {PAGE}:{server.port}") == (
            421,
            "wrong_host",
        )
        for path in ("/v1/model", "/v1/status", "/v1/events", "/v1/evaluations", "/metrics"):
            assert pull(line, path, rebound) == (421, "wrong_host")
            assert pull(line, path, host, page) == (403, "foreign_origin")
        assert server.status()["updates"]["accepted"] == 0
        assert line.get("/healthz", "Origin: null").status == 200  # tells nothing; for any probe
        # Programs, this server's own pages, and the names that the operator gave.
        assert push(line, "1", host, f"{BYTES}; v=1") == (202, None)
        assert push(line, "2", host, BYTES, f"Origin: http://{own}") == (202, None)
        assert push(line, "3", "Host: fl.example", BYTES, "Origin: https://fl.example")[0] == 202
        for name in ("localhost", "[::1]", "server", "OTHER.example.", "10.1.2.3"):
            assert pull(line, "/v1/model", f"Host: {name}:{server.port}") == (200, None)
        assert pull(line, "/v1/model")[0] == 200  # no browser leaves Host out


@pytest.mark.slow
def test_any_host_will_do_where_a_token_is_needed(tmp_path):
    store = str(tmp_path / "run.db")
    tokens = register(store, ["ann"])
    place = (store, write_model(tmp_path / "model"), tmp_path / "log")
    token = f"Authorization: Bearer {tokens['ann']}"
    with ServerProcess(*place) as server, Line(server.port) as line:
        assert pull(line, "/v1/model", "Host: behind.a.proxy.example", token) == (200, None)
        assert pull(line, "/v1/model", "Host: behind.a.proxy.example") == (401, "unauthorized")
        assert push(line, "1", "Host: x.example", token, BYTES) == (202, None)
        assert push(line, "2", "Host: x.example", token, BYTES, f"Origin: {PAGE}")[0] == 403


def test_names_that_no_page_can_have():
    for host in ("127.0.0.1", "127.0.0.1:80", "[::1]:80", "localhost:1", "a.localhost", "server"):
        assert is_local(host), host
    for host in ("page.example", "page.example:80", "localhost.page.example", "127.0.0.1.page.com"):
        assert not is_local(host), host


def test_an_origin_may_leave_out_the_port_of_its_scheme():
    origins = Origins(any_host=False)
    origins.check({"host": "server:80", "origin": "http://server"})
    origins.check({"host": "server", "origin": "https://server"})
    for origin in ("http://server:80", "https://server:8443", "file://server", "server", ""):
        with pytest.raises(Refusal, match="foreign_origin"):
            origins.check({"host": "server:443", "origin": origin})


def test_tls_proves_the_name(tmp_path):
    for name in ("cert", "key"):
        (tmp_path / name).touch()
    open_to_all = ServerSettings(open_enrolment=True)
    secure = Address(tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")
    origins_of(secure, open_to_all).check({"host": "fl.example"})
    with pytest.raises(Refusal, match="wrong_host"):
        origins_of(Address(), open_to_all).check({"host": "fl.example"})
    origins_of(Address(host_name="fl.example"), open_to_all).check({"host": "fl.example:1"})


def test_the_type_of_a_body_is_read_without_its_parameters():
    check_type({"content-type": "Application/Octet-Stream ; charset=binary"})
    with pytest.raises(Refusal, match="wrong_type"):
        check_type({"content-type": "application/octet-stream-not"})


def test_a_host_name_has_no_scheme_and_no_port():
    for wrong in ("http://fl.example", "fl.example:80", "a b"):
        with pytest.raises(ConfigError, match="--host-name"):
            Address(host_name=wrong)
