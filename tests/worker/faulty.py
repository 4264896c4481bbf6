"""A small server that speaks the protocol, and fails on request; and a clock of its own."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np

from anarchic import AfaCd, Layout, SharedVectors, Snapshot, wire
from anarchic.worker import Connection, Worker

LAYOUT = Layout.of({"x": ((2,), "F32")})


class Scripted:
    """Takes updates as the real server does; ``faults`` say what happens to the next POSTs.

    A fault is a status code, a pair of one and its Retry-After, a refusal ``(status, code)``, or
    ``"lose"``: the update is taken and the answer lost.
    """

    def __init__(self, m=1, run="run-a", extras=(), max_staleness=1000):
        rule = AfaCd(m=m)
        self.rule = SharedVectors(rule, names=extras, population=2) if extras else rule
        self.extras = frozenset(extras)
        self.state = self.rule.init(np.zeros(2, np.float32))
        self.run, self.epoch, self.max_staleness = run, None, max_staleness
        self.condition = "running"
        self.faults, self.pull_faults = [], []
        self.taken = {}  # (worker, id) -> body
        self.posts, self.pulls, self.authorizations = [], [], []

    def __call__(self, request):
        """For ``httpx.MockTransport``."""
        self.authorizations.append(request.headers.get("Authorization"))
        if request.url.path == "/v1/model":
            return self.pull(request)
        if request.url.path == "/v1/status":
            return httpx.Response(200, json={"run": self.run, "state": self.condition})
        assert int(request.headers["Content-Length"]) == len(request.content)
        self.posts.append(request.content)
        fault = self.faults.pop(0) if self.faults else None
        if fault == "refused connection":
            raise httpx.ConnectError("refused", request=request)
        if isinstance(fault, httpx.Response):
            return fault
        if isinstance(fault, int):
            return httpx.Response(fault)
        if isinstance(fault, tuple):
            return self.refusal(*fault)
        answer = self.push(request.content)
        if fault == "lose":
            raise httpx.ReadError("cut", request=request)
        return answer

    def pull(self, request):
        fault = self.pull_faults.pop(0) if self.pull_faults else None
        if isinstance(fault, httpx.Response):
            return fault
        etag = f'"{self.run}-{self.state.version}"'
        self.pulls.append(request.headers.get("If-None-Match"))
        if request.headers.get("If-None-Match") == etag:
            return httpx.Response(304, headers={"ETag": etag})
        extras = {name: self.state.extras[name] for name in self.extras}
        snapshot = Snapshot(self.state.version, self.state.params, extras)
        content = wire.encode_snapshot(LAYOUT, snapshot, self.run, epoch=self.epoch)
        return httpx.Response(200, content=content, headers={"ETag": etag})

    def push(self, body):
        update = wire.decode_update(body, LAYOUT, extras=self.extras, worker=None).update
        key = (update.worker, update.id)
        if key in self.taken:
            same = self.taken[key] == body
            return self.answer(200, "duplicate") if same else self.refusal(409, "conflict")
        if update.base_version > self.state.version:
            return self.refusal(409, "unknown_version")
        if self.state.version - update.base_version > self.max_staleness:
            return self.refusal(409, "stale")
        self.taken[key] = body
        self.state = self.rule.receive(self.state, update)
        return self.answer(202, "accepted")

    def answer(self, status, word):
        return httpx.Response(
            status, json={"status": word, "version": self.state.version, "buffered": 0}
        )

    def refusal(self, status, what):
        headers = {"Retry-After": str(what)} if not isinstance(what, str) or "GMT" in what else {}
        code = "later" if headers else what
        told = {"error": code, "message": f"No: {code}.", "remedy": "Do otherwise."}
        return httpx.Response(status, json=told, headers=headers)

    def worker(self, *, name="ann", token=None, spool=None, clock=None, **connection):
        """A worker that is connected to it without a socket."""
        return Worker(
            "http://server",
            name=name,
            token=token,
            spool=spool,
            clock=clock or TestClock(),
            connection=Connection(transport=httpx.MockTransport(self), **connection),
        )


class TestClock:
    """Time that passes only in sleep, and a little in every look at it."""

    __test__ = False

    def __init__(self, now_s=0.0):
        self.time_s, self.naps = now_s, []
        self.on_sleep = None

    def now_s(self):
        return self.time_s

    def elapsed_s(self):
        return self.time_s

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.time_s += seconds
        if self.on_sleep is not None:
            self.on_sleep()

    def wake(self):
        pass


class Listening:
    """A ``Scripted`` server on a real port. More faults: ``"cut"`` takes the update and stops in
    mid-answer, ``"cut_body"`` hangs up while the body comes, ``"hang"`` never answers."""

    def __init__(self, scripted, tls=None):
        self.scripted = scripted
        outer, self.gone = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.respond(self, b"")

            def do_POST(self):
                faults = outer.scripted.faults
                if faults and faults[0] == "cut_body":
                    faults.pop(0)
                    self.rfile.read(10)
                    return outer.hang_up(self)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if faults and faults[0] == "hang":
                    outer.scripted.posts.append(body)
                    outer.gone.wait(30)
                    return outer.hang_up(self)
                outer.respond(self, body)
                return None

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # a broken handshake is part of the test
        if tls is not None:
            self.http.socket = tls.wrap_socket(
                self.http.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def respond(self, handler, body):
        faults = self.scripted.faults
        cut = bool(body) and bool(faults) and faults[0] == "cut"
        if cut:
            faults[0] = None
        request = httpx.Request(
            handler.command, self.url + handler.path, headers=dict(handler.headers), content=body
        )
        try:
            answer = self.scripted(request)
        except httpx.RequestError:
            return self.hang_up(handler)
        handler.send_response(answer.status_code)
        for name in ("ETag", "Retry-After"):
            if name in answer.headers:
                handler.send_header(name, answer.headers[name])
        if answer.status_code != 304:
            handler.send_header("Content-Length", str(len(answer.content)))
        handler.end_headers()
        handler.wfile.write(answer.content[:5] if cut else answer.content)
        return self.hang_up(handler) if cut else None

    def hang_up(self, handler):
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    def close(self):
        self.gone.set()
        self.http.shutdown()
        self.http.server_close()


def ids(bodies):
    """The ids of updates as they were sent."""
    return [
        json.loads(b[8 : 8 + int.from_bytes(b[:8], "little")])["__metadata__"]["id"] for b in bodies
    ]
