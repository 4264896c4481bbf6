"""The open connections: how many there may be, and which of them makes room for a new one.

A connection is counted from the moment it is accepted, before any TLS handshake. When there are
too many, one that has no request is closed, and otherwise one whose client must send or read.
Among those it is one of the address with the most, the one that has been quiet longest; where no
address has many, the one that has been quiet longest of all. So idle connections cost no upload
in progress. Only an address with more than its share of uploads and readers gives way even to
those that have just come: it cannot push out the others.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

from anarchic.server.slots import network

SHARE = 4  # one address may keep this part of all connections, a quarter, from newcomers
FEW = 16  # addresses with less than this part of all connections count as equal
NEW_S = 1.0  # how long a connection without a request counts as one that has just come
CLOSING = 64  # connections that may still be closing while new ones are accepted
FULL_S = 0.05  # how long to wait when no connection can be closed
PEER: ContextVar[str] = ContextVar("PEER", default="")  # the address that a handshake is with
NO_FILE_S = 0.5  # how long to wait when the system has no descriptor left


class Closable(Protocol):
    """What can be closed for a new one."""

    network: str  # where it comes from

    def abort(self) -> None: ...


class Connections:
    """Counts connections, and knows for whom each of them waits."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        # Sockets say themselves whether they are closed, however that came about: nothing that
        # goes wrong between the event loop and a protocol can falsify the count.
        self._sockets: set[socket.socket] = set()
        self._counted: set[Closable] = set()  # those that have not been told to close
        # Per network, the quiet ones first. A connection that the server works for is in neither.
        self._idle: _Kind = {}  # no request yet, or no further one
        self._waited_for: _Kind = {}  # must send a body, or read

    @property
    def open(self) -> int:
        """Descriptors in use, those of closing connections too."""
        self._sockets = {accepted for accepted in self._sockets if accepted.fileno() >= 0}
        return len(self._sockets)

    def accepted(self, accepted: socket.socket) -> None:
        """Count a descriptor until it is closed."""
        self._sockets.add(accepted)

    def enter(self, connection: Closable, before: Closable | None = None) -> None:
        """A new one, without a request. What is said of it counts until it is forgotten.

        ``before`` is what stood for it so far. If that was told to close, so is this one.
        """
        if before is not None:
            if before not in self._counted:
                return
            self.forget(before)
        self._counted.add(connection)
        self.idle(connection)

    def idle(self, connection: Closable) -> None:
        """It has no request in progress, from now on."""
        self._put(connection, self._idle)

    def waited_for(self, connection: Closable) -> None:
        """It must go on sending or reading, and has just done so."""
        self._put(connection, self._waited_for)

    def at_work(self, connection: Closable) -> None:
        """The server works on its request."""
        self._take_out(connection)

    def forget(self, connection: Closable) -> None:
        """It is closed, or will be at once."""
        self._counted.discard(connection)
        self._take_out(connection)

    def make_room(self) -> bool:
        """Whether one more connection may be accepted, perhaps after closing another."""
        limit = self._most + CLOSING
        if len(self._sockets) >= limit and self.open >= limit:
            return False
        if len(self._counted) < self._most:
            return True
        longest = self._longest_quiet()
        if longest is None:
            return False
        self.forget(longest)
        longest.abort()
        return True

    def _longest_quiet(self) -> Closable | None:
        idle, waited_for = self._first(self._idle), self._first(self._waited_for)
        if idle and len(waited_for) > self._most // SHARE:
            since = next(iter(idle.values()))
            if self._clock() - since < NEW_S:
                return next(iter(waited_for))
        return next(iter(idle or waited_for), None)

    def _first(self, kind: _Kind) -> dict[Closable, float]:
        """Those of one network, of which the first is to be closed."""
        largest = max(kind.values(), key=len, default={})
        if len(largest) > self._most // FEW:
            return largest
        return min(kind.values(), key=lambda same: next(iter(same.values())), default={})

    def _put(self, connection: Closable, kind: _Kind) -> None:
        self._take_out(connection)
        if connection in self._counted:  # news of one that is closing come too late
            kind.setdefault(connection.network, {})[connection] = self._clock()

    def _take_out(self, connection: Closable) -> None:
        for kind in (self._idle, self._waited_for):
            same = kind.get(connection.network)
            if same is not None and connection in same:
                del same[connection]
                if not same:
                    del kind[connection.network]


_Kind = dict[str, dict[Closable, float]]  # per network, since when it has been quiet


class _Arriving:
    """A connection that is not yet a protocol's: its TLS handshake is not over.

    Without TLS it becomes one at once. Cancelling the task would then come too late: uvloop
    closes the connection without telling the protocol, which would be counted for ever.
    """

    def __init__(self, where: str, make: Callable[[], Any], *, tls: bool) -> None:
        self.network = where
        self._make, self._tls = make, tls
        self._aborted = False
        self._protocol: Any = None  # of uvicorn; its transport is None until the handshake is over
        self.task: asyncio.Task[Any] | None = None

    def protocol(self) -> Any:
        self._protocol = self._make()
        self._protocol.arriving = self
        return self._protocol

    @property
    def arrived(self) -> bool:
        return self._protocol is not None and self._protocol.transport is not None

    def abort(self) -> None:
        self._aborted = True
        if self._tls and self.task is not None:
            self.task.cancel()

    def end(self, accepted: socket.socket) -> None:
        """The task is done."""
        if not self.arrived:
            with suppress(OSError):
                accepted.close()
        elif self._aborted:
            self._protocol.transport.abort()


class Listener:
    """Accepts connections one by one, in place of the event loop's own server.

    That one would accept any number of connections whose handshake never ends.
    """

    def __init__(self, connections: Connections, handshake_s: float) -> None:
        self._connections, self._handshake_s = connections, handshake_s
        self.sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def create_server(
        self, make: Callable[[], asyncio.Protocol], *, sock: socket.socket | None = None,
        host: str = "", port: int = 0, ssl: ssl.SSLContext | None = None, backlog: int = 2048,
    ) -> Listener:  # fmt: skip
        """As that of an event loop, as far as uvicorn uses it."""
        sockets = [sock] if sock is not None else _bound(host, port)
        self.sockets += sockets
        for listening in sockets:
            listening.setblocking(False)
            listening.listen(backlog)
            self._tasks.append(asyncio.create_task(self._accept(listening, make, ssl)))
        return self

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for listening in self.sockets:
            listening.close()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:  # it has left again
                continue
            except OSError:
                await asyncio.sleep(NO_FILE_S)
                continue
            try:
                while not self._connections.make_room():
                    await asyncio.sleep(FULL_S)
                PEER.set(address[0])  # the task that this starts keeps it
                self._arrive(accepted, network(address[0]), make, context)
            except BaseException as error:
                accepted.close()
                if not isinstance(error, Exception):
                    raise
                told = {"message": "A connection could not be taken.", "exception": error}
                loop.call_exception_handler(told)
            await asyncio.sleep(0)  # whoever is connected comes first

    def _arrive(
        self,
        accepted: socket.socket,
        where: str,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
    ) -> None:
        arriving = _Arriving(where, make, tls=context is not None)
        self._connections.accepted(accepted)
        self._connections.enter(arriving)
        limit_s = self._handshake_s if context is not None else None
        arriving.task = asyncio.create_task(
            asyncio.get_running_loop().connect_accepted_socket(
                arriving.protocol, accepted, ssl=context, ssl_handshake_timeout=limit_s
            )
        )
        arriving.task.add_done_callback(partial(self._arrived, arriving, accepted))

    def _arrived(
        self, arriving: _Arriving, accepted: socket.socket, task: asyncio.Task[Any]
    ) -> None:
        self._connections.forget(arriving)
        if not task.cancelled():
            task.exception()  # such as a failed handshake, which is logged elsewhere
        arriving.end(accepted)


def _bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a host."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    each = {(family, at) for family, _, _, _, at in found}
    return [socket.create_server(at, family=family) for family, at in sorted(each)]
