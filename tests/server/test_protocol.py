"""The connection itself: heads, bodies that go on after an answer, readers who do not read.

The last tests here check the parts of uvicorn that it does not promise to keep. If one fails, read
what changed in uvicorn, adapt src/anarchic/server/protocol.py until all tests here pass, and only
then change the range in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from anarchic.page.assets import HEADERS
from anarchic.server import connections, protocol, serve
from anarchic.server.app import make_app
from anarchic.server.connections import Connections, Listener
from anarchic.server.protocol import BoundedProtocol
from anarchic.server.sending import PIECE
from anarchic.server.service import Service
from anarchic.server.settings import Limits
from anarchic.server.store import open_store
from tests.chaos.talk import Line, Unreachable
from tests.server.make import begun

LARGE = b"x" * (64 << 20)  # more than the system buffers for a reader who does not read


async def app(scope, receive, send):
    """Counts the bytes of a body; ``/early`` answers without reading, ``/large`` with a lot, and
    ``/at-once`` with as much, handed over as a whole."""
    if scope["type"] != "http":
        return
    count = 0
    while scope["path"] == "/":
        message = await receive()
        count += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = LARGE if scope["path"] in ("/large", "/at-once") else str(count).encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    size = PIECE if scope["path"] == "/large" else len(body)
    for at in range(0, len(body), size):
        piece, more = memoryview(body)[at : at + size], at + size < len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": more})


@contextmanager
def served(**limits):
    chosen = Limits(**limits)
    crowd = Connections(chosen.connections)
    http = partial(BoundedProtocol, limits=chosen, all_connections=crowd)
    config = uvicorn.Config(app, http=http, ws="none", lifespan="off", log_config=None)
    service = SimpleNamespace(close_streams=lambda: None)
    with _listening(serve._Server(config, service, Listener(crowd, 5.0))) as port:
        yield port
    assert crowd.open == 0


@contextmanager
def _listening(server):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        run = server.serve([listener])
        thread = threading.Thread(target=asyncio.run, args=(run,))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


def trickled_s(line, piece):
    """How long a connection lasts that goes on like this."""
    began = time.monotonic()
    with suppress(Unreachable):
        while time.monotonic() - began < 10:
            line.send(piece)
            time.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.slow
def test_a_head_that_never_ends_is_refused():
    with served(header_s=0.3) as port, Line(port) as line:
        line.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        began = time.monotonic()
        answer = line.answer()
        assert (answer.status, answer.json()["error"]) == (408, "too_slow")
        assert 0.2 < time.monotonic() - began < 5


@pytest.mark.slow
def test_a_trickled_head_gains_no_time():
    with served(header_s=0.5) as port, Line(port) as line:
        assert line.get("/").status == 200  # a second request is no better than a first
        line.send(b"GET / HTTP/1.1\r\n")
        assert trickled_s(line, b"X: y\r\n") < 5


@pytest.mark.slow
def test_a_silent_connection_is_closed():
    with served(header_s=0.3) as port, Line(port) as line:
        line.send(b"")
        assert line.hung_up(5)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_head_above_the_limit_is_refused(at_once):
    with served(header_bytes=2000) as port, Line(port) as line:
        line.send(b"GET / HTTP/1.1\r\n")
        if at_once:
            line.send(b"X: " + b"y" * 3000 + b"\r\n\r\n")
        else:
            for _ in range(21):  # and not one byte more: what follows a close resets it
                line.send(b"X: " + b"y" * 90 + b"\r\n")
        answer = line.answer()
        assert (answer.status, answer.json()["error"]) == (431, "head_too_large")
        assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


@pytest.mark.parametrize("cut", range(1, 5))
@pytest.mark.slow
def test_a_head_may_come_in_pieces_with_a_large_body_behind_it(cut):
    """The end of the head is not looked for in one piece of it."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    with served(header_bytes=2000) as port, Line(port) as line:
        for _ in range(2):
            line.send(head[:-cut])
            time.sleep(0.1)
            line.send(head[-cut:] + b"z" * 100_000)
            answer = line.answer()
            assert (answer.status, answer.body) == (200, b"100000")


@pytest.mark.parametrize("coding", [b"chunked", b"gzip, chunked", b"identity"])
@pytest.mark.parametrize("path", [b"/", b"/early"])
def test_a_body_of_unknown_length_is_refused_before_it_comes(path, coding):
    """Headers may follow it, as many as anybody likes to send, and were kept."""
    head = b"GET %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %b\r\n\r\n" % (path, coding)
    with served() as port, Line(port) as line:
        assert line.get("/").status == 200  # a second request is no better than a first
        line.send(head + b"0\r\na: b\r\n")
        answer = line.answer()
        assert (answer.status, answer.json()["error"]) == (411, "length_required")


@pytest.mark.slow
def test_trailing_headers_are_dropped_and_timed_out(monkeypatch):
    monkeypatch.setattr(protocol, "REFUSED_BODY_S", 0.5)
    with served() as port, Line(port) as line:
        line.send(b"GET /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        assert trickled_s(line, b"a: b\r\n" * 100) < 5


def test_an_early_answer_reaches_a_client_that_is_still_sending():
    """Closing at once would reset the connection, and the answer would be gone."""
    body = b"z" * 20_000_000
    with served() as port, Line(port) as line:
        line.send(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n")
        time.sleep(0.1)
        line.send(body)
        assert line.answer().status == 200
        assert line.get("/").status == 200  # and the connection is still good


@pytest.mark.slow
def test_a_body_that_goes_on_after_the_answer_is_cut(monkeypatch):
    monkeypatch.setattr(protocol, "REFUSED_BODY_S", 0.5)
    with served() as port, Line(port) as line:
        line.send(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n")
        assert line.answer().status == 200
        assert trickled_s(line, b"z") < 5


@pytest.mark.slow
def test_a_client_that_does_not_read_is_closed_and_a_slow_one_is_not(monkeypatch):
    monkeypatch.setattr(protocol, "READER_S", 0.4)
    with served(least_rate=1e6) as port, Line(port) as idle, Line(port) as slow:
        for line in (idle, slow):
            line.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        count = 0
        while count < len(LARGE):
            count += len(slow.receive(8 << 20))
            time.sleep(0.02)
        time.sleep(1.5)  # looking for the end is reading, which would be in time before
        assert idle.hung_up(5)


def taken(line, wait_s=0.0):
    """How many bytes come until the server hangs up, of which one MB is read at a time."""
    count = 0
    with suppress(OSError):
        while piece := line.receive(1 << 20):
            count += len(piece)
            time.sleep(wait_s)
    return count


@pytest.mark.slow
def test_a_client_that_reads_too_slowly_is_closed(monkeypatch):
    """It takes some of every piece in time; in the end it is late all the same."""
    monkeypatch.setattr(protocol, "READER_S", 1.0)
    with served(least_rate=100e6) as port, Line(port) as line:
        line.send(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert 0 < taken(line, wait_s=0.05) < len(LARGE)


@pytest.mark.parametrize("ask", [b"GET /large", b"GET /at-once"])
@pytest.mark.slow
def test_clients_that_do_not_read_are_closed_for_new_connections(ask):
    with served(connections=4) as port, ExitStack() as lines:
        deaf = [lines.enter_context(Line(port)) for _ in range(4)]
        for line in deaf:
            line.send(ask + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(0.3)
        for _ in range(4):
            newcomer = lines.enter_context(Line(port))
            assert newcomer.get("/").status == 200
        # One is enough: after that the newcomers have no request, and go first.
        assert any(taken(line) < len(LARGE) for line in deaf)
        assert newcomer.get("/").status == 200


def test_idle_connections_are_closed_for_new_ones(monkeypatch):
    monkeypatch.setattr(connections, "NEW_S", 0.1)
    with served(connections=10) as port, ExitStack() as lines:
        idle = [lines.enter_context(Line(port)) for _ in range(4)]
        for line in idle:
            assert line.get("/").status == 200
        in_head = [lines.enter_context(Line(port)) for _ in range(3)]
        for line in in_head:
            line.send(b"GET / HTTP/1.1\r\n")
        in_body = [lines.enter_context(Line(port)) for _ in range(3)]
        for line in in_body:
            line.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
        time.sleep(0.2)
        for _ in range(6):
            newcomer = lines.enter_context(Line(port))
            assert newcomer.get("/").status == 200
        assert all(line.hung_up(5) for line in (*idle, *in_head[:2]))
        in_body[-1].send(b"12345678")
        assert in_body[-1].answer().body == b"9"  # those who came last are still served


@pytest.mark.slow
def test_there_are_never_more_connections_than_descriptors():
    resource = pytest.importorskip("resource")
    code = (
        "import resource; from anarchic.server.serve import connections_within as within;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1000));"
        "assert within(4096) == 1000 - 128;"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1000, 1000);"
        "assert within(10) == 10"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 1000
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_handshake_that_never_ends_is_closed(tmp_path):
    """No protocol exists until it has ended."""
    certificate = trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    certificate.write_to_path(tmp_path / "server.pem")
    store = open_store(tmp_path / "run.db")
    begun(store)
    service = Service(store, log=lambda event, **facts: None)
    config = uvicorn.Config(
        make_app(service), ssl_certfile=tmp_path / "server.pem", log_config=None
    )
    crowd = Connections(10)
    server = serve._Server(config, service, Listener(crowd, 0.5))
    with _listening(server) as port, Line(port) as line:
        line.send(b"\x16\x03\x01")  # the beginning of a hello
        assert line.hung_up(5)
    assert crowd.open == 0
    store.close()


@pytest.mark.parametrize(
    "nonsense",
    [b"\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"],
)
def test_input_that_is_not_http_gets_a_json_refusal(nonsense):
    with served() as port, Line(port) as line:
        line.send(nonsense)
        answer = line.answer()
        assert answer.status == 400
        assert json.loads(answer.body)["error"] == "malformed"


OVERRIDDEN = {name for name in vars(BoundedProtocol) if not name.startswith("_")} - {"abort"}


def test_uvicorn_is_of_a_version_that_was_tested() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = map(Requirement, project["project"]["optional-dependencies"]["server"])
    pinned = next(requirement for requirement in extra if requirement.name == "uvicorn")
    assert pinned.specifier.contains(uvicorn.__version__), (
        f"uvicorn {uvicorn.__version__} is outside of {pinned}."
    )


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_what_is_overridden_exists_and_takes_the_same_arguments(name: str) -> None:
    theirs = getattr(HttpToolsProtocol, name, None)
    assert theirs is not None, f"uvicorn {uvicorn.__version__} has no HttpToolsProtocol.{name}."
    taken = [len(inspect.signature(f).parameters) for f in (theirs, getattr(BoundedProtocol, name))]
    assert taken[0] == taken[1], f"uvicorn {uvicorn.__version__} changed HttpToolsProtocol.{name}."


class Transport(asyncio.Transport):
    """Leads nowhere."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def is_closing(self) -> bool:
        return False


async def _app(scope: object, receive: object, send: Callable[..., Awaitable[None]]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_connection_has_the_attributes_that_are_read() -> None:
    async def connected() -> None:
        config = uvicorn.Config(
            _app,
            http=partial(BoundedProtocol, limits=Limits(), all_connections=Connections(9)),
            ws="none",
            log_config=None,
        )
        config.load()
        made = config.http_protocol_class(config=config, server_state=ServerState(), app_state={})
        assert made.loop is asyncio.get_running_loop()
        made.connection_made(Transport())
        assert made.cycle is None  # no request yet
        made.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
        assert (b"host", b"x") in made.headers
        assert made in made.connections
        assert isinstance(made.flow, FlowControl)
        assert made.flow.write_paused is False
        assert made.cycle.response_complete is False
        assert made.cycle.more_body is True
        assert made.cycle.keep_alive is True
        assert made.cycle.body == b""
        assert made.flow.read_paused is False

    asyncio.run(connected())


def test_uvicorn_accepts_by_what_is_replaced() -> None:
    assert "loop.create_server(" in inspect.getsource(uvicorn.Server.startup)
