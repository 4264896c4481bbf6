"""Answers of proxies and of networks, as a worker tells of them."""

from __future__ import annotations

import shutil
import subprocess

import httpx
import numpy as np
import pytest

from anarchic.errors import WorkerError
from anarchic.worker import Connection, Retry, Worker
from anarchic.worker.exchange import Reply
from anarchic.worker.foreign import MOST_SHOWN, described, start_of
from tests.chaos.servers import free_port
from tests.waiting import until
from tests.worker.faulty import Listening, Scripted

ONCE = Retry(tries=1)
PORTAL = b"<html><head><title>Hotel WLAN</title><style>p{}</style></head><body>Please log in"


def reply(body, status=502, kind="text/html", **headers):
    request = httpx.Request("GET", "http://server/v1/model", headers=headers)
    return Reply(status, "Bad Gateway", {"Content-Type": kind}, bytearray(body), request)


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        (PORTAL, "text/html", "Hotel WLAN Please log in"),
        (b"  <h1>Oh</h1>\r\n<!-- <secret> -->no", "", "Oh no"),
        (b"upstream\x1b[31m \x00failed\n\xe2\x80\xae", "text/plain", "upstream [31m failed"),
        (b"<script>" + b"x" * 9_000, "text/html", ""),
        (b"w" * 9_000, "text/plain", "w" * MOST_SHOWN + "..."),
        (b"\x00\x01\x02", "application/octet-stream", ""),
        (b'{"a": 1}', "application/json", ""),
        (b"", "text/html", ""),
    ],
)
def test_the_start_of_a_page_is_one_bounded_line_of_what_a_reader_sees(body, kind, shown):
    assert start_of(reply(body, kind=kind)) == shown


def test_a_page_that_shows_the_request_does_not_show_the_token():
    page = reply(b"You sent: Bearer ann.s3cret", Authorization="Bearer ann.s3cret")
    assert described(page).startswith('HTTP 502 Bad Gateway: "You sent: Bearer ***".')


def test_a_log_in_page_in_the_place_of_the_model_is_told_as_such(server):
    server.pull_faults = [httpx.Response(200, content=PORTAL)]
    with server.worker(retry=ONCE) as worker, pytest.raises(WorkerError) as failed:
        worker.pull()
    assert 'HTTP 200, it begins with "Hotel WLAN Please log in"' in str(failed.value)
    server.faults = [httpx.Response(200, html=PORTAL.decode())]
    with server.worker(retry=ONCE) as worker, pytest.raises(WorkerError) as failed:
        worker.push(np.ones(2, np.float32), local_lr=0.1)
    assert "a network that wants you to log in first" in str(failed.value)


NGINX = """
daemon off; pid {home}/pid; error_log {home}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
  client_max_body_size {most}; proxy_read_timeout 300ms;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {behind}; }} }}
}}
"""


@pytest.fixture
def nginx(tmp_path):
    """A real nginx in front of a server, with its usual mistakes."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    running = []

    def start(behind, most="1m"):
        port, file = free_port(), tmp_path / "nginx.conf"
        file.write_text(NGINX.format(home=tmp_path, most=most, port=port, behind=behind))
        command = [program, "-p", str(tmp_path), "-c", str(file), "-e", str(tmp_path / "error.log")]
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        url = f"http://127.0.0.1:{port}"
        until(lambda: running[-1].poll() is not None or answers(url))
        return url

    yield start
    for process in running:
        process.terminate()
        process.wait(10)


def answers(url):
    try:
        return httpx.get(url, timeout=5.0) is not None
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("fault", "most", "told"),
    [
        (None, "1", 'HTTP 413 Request Entity Too Large: "413 Request Entity Too Large 413'),
        ("hang", "1m", 'HTTP 504 Gateway Time-out: "504 Gateway Time-out'),
        ("refused connection", "1m", 'HTTP 502 Bad Gateway: "502 Bad Gateway'),
    ],
)
def test_what_nginx_says_in_front_of_a_server_reaches_the_log(nginx, fault, most, told):
    behind = Listening(Scripted())
    behind.scripted.faults = [fault] * 3 if fault else []
    url = nginx(behind.url, most)
    with Worker(url, name="ann", connection=Connection(retry=ONCE)) as worker:
        worker.pull()
        with pytest.raises(WorkerError) as failed:
            worker.push(np.ones(2, np.float32), local_lr=0.1)
    behind.close()
    assert told in str(failed.value)
    hint = {"1": "nginx: client_max_body_size", "hang": "proxy_read_timeout"}.get(
        most if most == "1" else fault, "cannot reach it"
    )
    assert hint in str(failed.value)
