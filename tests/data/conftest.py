"""Real data where it is there, an empty home where it must not be, and mirrors that misbehave."""

import os
import re
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.fixture
def real_data():
    """The folder with the real data sets; the test is skipped without one."""
    place = os.environ.get("ANARCHIC_DATA")
    if not place or not Path(place).is_dir():
        pytest.skip("needs real data: set ANARCHIC_DATA to a folder that holds it")
    return Path(place)


@pytest.fixture
def empty_home(monkeypatch, tmp_path):
    """An empty cache, and no other place in which files are looked for."""
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("anarchic.data.files._SYSTEM_FOLDERS", {})
    return tmp_path / "cache" / "anarchic"


@pytest.fixture
def serve(monkeypatch):
    """A function that puts a ``Mirror`` on a real HTTP server of this machine."""
    monkeypatch.setenv("no_proxy", "*")
    with ExitStack() as stack:
        yield lambda body, **manners: stack.enter_context(_serving(Mirror(body, **manners)))


@dataclass
class Mirror:
    """One file, and how the server treats those who ask for it."""

    body: bytes
    ranges: bool = True
    announce: bool = True
    status: int = 0  # answer with this error instead
    cut_after: int = 0  # drop the first connection after N bytes of the body
    requests: list = field(default_factory=list)  # the Range header of each request, or None
    url: str = ""

    def answer(self, handler):
        asked = handler.headers.get("Range")
        self.requests.append(asked)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and self.ranges else 0
        if self.status or start > len(self.body):
            handler.send_error(self.status or 416)
            return
        handler.send_response(206 if start else 200)
        if start:
            end = len(self.body)
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        if self.announce:
            handler.send_header("Content-Length", str(len(self.body) - start))
        handler.end_headers()
        cut, self.cut_after = self.cut_after, 0
        with suppress(ConnectionError):  # whoever asked may have heard enough
            handler.wfile.write(self.body[start : cut or None])


@contextmanager
def _serving(mirror):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            mirror.answer(self)

        def log_message(self, *_):
            """Keep the test output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        mirror.url = f"http://127.0.0.1:{server.server_port}/file"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield mirror
        finally:
            server.shutdown()
            thread.join()
