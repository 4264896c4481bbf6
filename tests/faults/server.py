"""One server process of the simulation: what ``anarchic serve`` does, without sockets."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from greenlet import GreenletExit

from anarchic.errors import AnarchicError
from anarchic.server import runs, serve
from anarchic.server.app import make_app
from anarchic.server.log import JsonLog, Log
from anarchic.server.service import Service
from anarchic.server.settings import Address, Limits, RunSettings, ServerSettings
from anarchic.server.store import Store
from tests.faults.hub import Hub, Process
from tests.faults.lookalikes import Loop

if TYPE_CHECKING:
    from tests.faults.network import Request
    from tests.faults.world import World


class LogFile:
    """Where log lines go: a disk that can be full, or a pipe that nobody reads."""

    def __init__(self, world: World) -> None:
        self._world = world

    def write(self, text: str) -> int:
        world = self._world
        if world.log_blocked_until > world.hub.now:
            world.happened["blocked log line"] += 1
            world.hub.sleep(world.log_blocked_until - world.hub.now)
        if world.log_full_until > world.hub.now:
            world.happened["failed log line"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        world.log_lines += text.count("\n")
        return len(text)

    def flush(self) -> None:
        pass


def make_log(file: LogFile) -> Log:
    """The log of a server."""
    return JsonLog(file)  # type: ignore[arg-type]


@contextmanager
def without_sockets(hub: Hub) -> Iterator[None]:
    """While it lasts, whoever calls ``serve.run`` is a ``Server`` of the simulation."""
    open_store = runs.open_store

    def opened(*args: Any, **settings: Any) -> Store:
        return hub.task.process.opened(open_store(*args, **settings))  # type: ignore[attr-defined]

    def listen(service: Service, address: Address) -> None:
        hub.task.process.listen(service)  # type: ignore[attr-defined]

    with (
        patch.object(runs, "open_store", opened),
        patch.object(serve, "listen", listen),
        patch.object(Address, "check_free", lambda self: None),
    ):
        yield


class Server(Process):
    """A server: ``ready`` once it answers, ``failure`` if it ended by an error."""

    def __init__(self, world: World, path: Path, name: str) -> None:
        super().__init__(name)
        self.world, self.path = world, path
        self.inode = 0
        self.loop: Loop | None = None
        self.service: Service | None = None
        self.app: Any = None
        self.ready = self.ended = False
        self.ready_since = 0.0
        self.failure: Exception | None = None
        self._stop: asyncio.Event | None = None
        self._store: Store | None = None
        world.hub.spawn(self, self._main, "main")

    def _main(self) -> None:
        plan = self.world.plan
        try:
            serve.run(
                RunSettings(store=self.path, keep_payloads=plan.keep_payloads, **plan.run_options),
                settings=ServerSettings(
                    step_after_s=plan.step_after_s, limits=Limits(**plan.limits)
                ),
                log=make_log(LogFile(self.world)),
            )
        except (AnarchicError, OSError) as error:
            self.failure = error
        finally:
            self.ready = False
            self.ended = True

    def opened(self, store: Store) -> Store:
        """Its store is open."""
        self._store, self.inode = store, self.path.stat().st_ino
        return store

    def listen(self, service: Service) -> None:
        """In place of ``serve.listen``, which waits for connections."""
        self.service = service
        self.world.invariants.watch(self)
        self.app = make_app(service)
        self.loop = Loop(self.world.hub)
        with closing(self.loop):
            self.loop.run_until_complete(self._serve(service))

    async def _serve(self, service: Service) -> None:
        self._stop = asyncio.Event()
        await service.start()
        self.ready, self.ready_since = True, self.world.hub.now
        await self._stop.wait()
        self.ready = False
        await service.stop()

    def stop(self) -> None:
        """As SIGTERM does."""
        if self.loop is not None and self._stop is not None:
            self.loop.call_soon_threadsafe(self._stop.set)

    def abandon(self) -> None:
        """Before a kill: a loop that goes on after any exception must end by itself."""
        if self.service is not None:
            self.service.collector._stopping = True
            self.service.collector._queue.clear()

    def free_locks(self) -> None:
        """After a kill: the system frees what a dead process had locked and open."""
        if self.loop is not None and not self.loop.is_closed():
            for task in asyncio.all_tasks(self.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(Exception, GreenletExit):
                    task.get_coro().close()
            self.loop.close()
        if self._store is not None:
            self._store._database._lock.close()  # type: ignore[attr-defined]

    def take(self, request: Request) -> None:
        """A request has arrived."""
        loop = self.loop
        assert loop is not None
        loop.call_soon_threadsafe(lambda: loop.create_task(self._answer(request)))

    async def _answer(self, request: Request) -> None:
        parts: list[bytes] = []
        start: dict[str, Any] = {}
        asked = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if asked:
                return asked.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(bytes(message.get("body", b"")))

        await self.app(request.scope(), receive, send)
        if self.dead or self.world.disk.doomed is self:
            return
        headers = {key.decode(): value.decode() for key, value in start["headers"]}
        request.answered(self, start["status"], headers, b"".join(parts))


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
