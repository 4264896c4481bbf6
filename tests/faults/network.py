"""The network: requests and answers that are late, lost, or sent twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.faults.hub import Task

if TYPE_CHECKING:
    from tests.faults.server import Server
    from tests.faults.world import World

PATIENCE_S = 3.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return json.loads(self.body).get("error", "") if self.status >= 400 else ""


@dataclass
class Request:
    """A request on its way; ``key`` is the worker and id of an update in it."""

    world: World
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    key: tuple[str, str] | None = None
    base: str | None = None  # digest of the model that the update was trained from
    answer: Answer | None = None
    waiter: Task | None = None
    keep_answer: bool = True
    sent_at: float = 0.0  # when it reached the server

    def scope(self) -> dict[str, Any]:
        path, _, query = self.path.partition("?")
        headers = {"host": "server", **self.headers}
        if self.method == "POST":
            headers["content-length"] = str(len(self.body))
            headers["content-type"] = "application/octet-stream"
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
            "client": ("10.0.0.1", 5000),
            "server": ("server", 8780),
        }

    def answered(self, server: Server, status: int, headers: dict[str, str], body: bytes) -> None:
        """The server has sent its answer; it may yet be lost."""
        answer = Answer(status, headers, body)
        self.world.invariants.answered(server, self, answer)
        if self.keep_answer and self.answer is None:
            self.answer = answer
            if self.waiter is not None:
                self.world.hub.wake(self.waiter)


class Network:
    """Carries requests to whichever server listens."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.bad_until = 0.0

    def call(self, request: Request, rng: Random, *, reliable: bool = False) -> Answer | None:
        """The answer, or None if none came in time. To be called by a task."""
        world, hub = self._world, self._world.hub
        bad = self.bad_until > hub.now and not reliable
        copies = 2 if bad and rng.random() < 0.25 else 1
        request.waiter = hub.task
        for _ in range(copies):
            if not (bad and rng.random() < 0.2):  # else: the request is lost
                late = rng.uniform(0, 2.0 if bad else 0.05)
                hub.spawn(hub.outside, lambda late=late: self._deliver(request, late), "packet")
            else:
                world.happened["lost request"] += 1
        if copies == 2:
            world.happened["request sent twice"] += 1
        if bad and rng.random() < 0.25:
            world.happened["lost answer"] += 1
            request.keep_answer = False
        end = hub.now + PATIENCE_S
        while request.answer is None and hub.now < end:
            hub.wait(end - hub.now)
        request.waiter = None
        return request.answer

    def _deliver(self, request: Request, late_s: float) -> None:
        self._world.hub.sleep(late_s)
        server = self._world.server
        if server is None or not server.ready or server.dead:
            return
        self._world.invariants.sent(request)
        server.take(request)
