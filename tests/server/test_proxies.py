"""What a proxy says of its client counts; what anybody else says of himself does not."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn

from anarchic.errors import ConfigError
from anarchic.server import serve
from anarchic.server.connections import Connections, Listener
from anarchic.server.protocol import BoundedProtocol
from anarchic.server.proxies import Proxies
from anarchic.server.settings import Address, Limits
from tests.chaos.servers import ServerProcess, write_model
from tests.chaos.talk import Line
from tests.server.test_protocol import _listening, app
from tests.waiting import until

HERE = "127.0.0.1"


def forwarded(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", value.encode()) for value in values]


@pytest.mark.parametrize(
    ("proxies", "peer", "came", "client"),
    [
        (None, HERE, ["192.0.2.7"], HERE),  # nobody is trusted
        (HERE, "192.0.2.9", ["192.0.2.7"], "192.0.2.9"),  # a stranger speaks for himself
        (HERE, HERE, ["192.0.2.7"], "192.0.2.7"),
        (HERE, f"::ffff:{HERE}", ["192.0.2.7"], "192.0.2.7"),
        (HERE, HERE, ["2001:db8::7"], "2001:db8::7"),
        (HERE, HERE, [], HERE),  # the proxy's own request
        (HERE, HERE, ["10.9.9.9, 192.0.2.7"], "192.0.2.7"),  # the client wrote the first itself
        (HERE, HERE, ["10.9.9.9", "192.0.2.7"], "192.0.2.7"),
        (f"{HERE}, 10.0.0.0/8", HERE, ["192.0.2.7, 10.1.1.1"], "192.0.2.7"),  # two proxies
        (HERE, HERE, ["192.0.2.7, unknown"], HERE),
        (HERE, HERE, ["192.0.2.7:4711"], HERE),
        (HERE, HERE, ["\xff, "], HERE),
    ],
)
def test_the_last_address_that_is_no_proxy_is_the_clients(proxies, peer, came, client):
    assert Proxies(proxies).client(peer, forwarded(*came)) == client


@pytest.mark.parametrize(
    ("peer", "subjects", "name"),
    [
        (HERE, ["CN=ann"], "ann"),
        (HERE, ["O=hospital,CN=ann,C=DE"], "ann"),
        (HERE, ["CN=ann+OU=ward"], "ann"),
        ("192.0.2.9", ["CN=ann"], None),
        (HERE, [], None),
        (HERE, [""], None),  # no certificate came
        (HERE, ["O=ann"], None),
        (HERE, ["CN=ann,CN=ben"], None),
        (HERE, ["CN=ann", "CN=ben"], None),
        (HERE, ["CN=ann", ""], None),
        (HERE, [r"O=x\,CN=ann"], None),  # all of it is the organisation's name
        (HERE, [r"CN=ann\,CN=ben"], None),
        (HERE, ["CN=ann ben"], None),
        (HERE, ["XCN=ann"], None),
    ],
)
def test_a_certificates_name_is_taken_from_the_proxy_if_there_is_exactly_one(peer, subjects, name):
    headers = [(b"x-client-subject", subject.encode()) for subject in subjects]
    expected = frozenset() if name is None else {name}
    assert Proxies(HERE).certificate_names(peer, headers) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("proxy.example", "takes addresses or networks"),
        ("127.0.0.1,", "got ''"),
        ("10.0.0.1/8", "takes addresses"),
        ("0.0.0.0/0", "everybody"),
        ("::/0", "everybody"),
    ],
)
def test_what_names_no_proxy_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        Address(trusted_proxy=given)


def refused(log: Path) -> list[str]:
    """The addresses of those who were refused, as far as the log has been written."""
    lines = [json.loads(text) for text in log.read_text().splitlines(True) if text[-1] == "\n"]
    return [line["address"] for line in lines if line["event"] == "refused"]


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [HERE, "192.0.2.1"])
def test_a_refusal_is_logged_with_the_address_of_the_proxys_client(tmp_path, proxy):
    place = (str(tmp_path / "run.db"), write_model(tmp_path / "model"), tmp_path / "log")
    words = ("--open-enrolment", "--trusted-proxy", proxy)
    with ServerProcess(*place, *words) as server, Line(server.port) as line:
        for client in ("192.0.2.7", "192.0.2.8"):  # one connection carries several clients
            lines = (f"GET /{client} HTTP/1.1", "Host: x", f"X-Forwarded-For: {client}", "", "")
            line.send("\r\n".join(lines).encode())
            assert line.answer().status == 404
        expected = ["192.0.2.7", "192.0.2.8"] if proxy == HERE else [HERE] * 2
        until(lambda: refused(tmp_path / "log") == expected)


def test_a_proxys_connection_counts_as_that_of_the_client_it_was_last_used_for():
    crowd = Connections(10)
    http = partial(BoundedProtocol, limits=Limits(), all_connections=crowd, proxies=Proxies(HERE))
    config = uvicorn.Config(app, http=http, ws="none", lifespan="off", log_config=None)
    service = SimpleNamespace(close_streams=lambda: None)
    server = serve._Server(config, service, Listener(crowd, 5.0))
    with _listening(server) as port, Line(port) as line:
        for client in ("192.0.2.7", "192.0.2.8"):
            assert line.get("/", f"X-Forwarded-For: {client}").status == 200
            until(lambda: [*crowd._idle] == [client])  # noqa: B023
        assert line.get("/").status == 200  # the proxy's own
        until(lambda: [*crowd._idle] == [HERE])
