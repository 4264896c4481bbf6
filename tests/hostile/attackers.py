"""Clients made of sockets alone: updates by hand, and many connections that misbehave at once."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import count

DATA = "weight"  # the one tensor of the models here


def update_head(size: int, id: str, *, base: int = 0, worker: str | None = None) -> bytes:
    """The beginning of an update of ``size`` float32; their bytes follow."""
    known = {"id": id, "base_version": str(base), "local_steps": "1", "local_lr": "0.1"}
    if worker is not None:
        known["worker"] = worker
    tensor = {"dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size]}
    text = json.dumps({"__metadata__": known, DATA: tensor}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def request_head(length: int, token: str | None = None) -> bytes:
    lines = ["POST /v1/updates HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}"]
    lines.append("Content-Type: application/octet-stream")
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode()


class Attack:
    """``connections`` that each do ``once`` again and again, until told to stop."""

    def __init__(self, port, once, connections, source="127.0.0.1"):
        self._port, self._once, self._connections = port, once, connections
        self._source = source
        self.answers = Counter()
        self._numbers = count()

    async def _client(self, number):
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(self._source, 0)
                )
                try:
                    await self._once(self, number, reader, writer)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.05)

    def number(self):
        return next(self._numbers)

    async def slowly(self, writer, data, rate):
        """Send at ``rate`` bytes per second, in pieces of a tenth of a second."""
        piece = max(1, int(rate / 10))
        for at in range(0, len(data), piece):
            writer.write(data[at : at + piece])
            await writer.drain()
            await asyncio.sleep(0.1)

    async def answer(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        self.answers[int(head.split()[1])] += 1

    async def _run(self, stop):
        tasks = [asyncio.create_task(self._client(n)) for n in range(self._connections)]
        while not stop.is_set():
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def going_on(self):
        stop = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(stop)))
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()
