"""What is large and being sent now: models, and copies of the page's one large script.

There are limits on models per puller, in all, and of how many versions.

A version stays in memory until all its readers have it, and each reader holds a piece of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anarchic.page.assets import Asset, plotly
from anarchic.server.limits import Pace
from anarchic.server.published import PublishedModel
from anarchic.server.refusals import Refusal, busy
from anarchic.server.slots import Pool, key_of

PIECE = 1 << 17  # bytes of a model that are sent at a time
BUFFER = 1 << 16  # that the system lets wait before it
READERS_BYTES = 1 << 27  # of the pieces of all readers
VERSIONS_BYTES = 1 << 26  # of the versions being sent, where these are small
PAUSE_S = 1.0  # before a copy is refused
COPIES, COPIES_PER_MINUTE = 8, 6.0  # of the script, per address: a browser keeps the one it has


class InPieces(Response):
    """A large body, sent in pieces: between them uvicorn waits until the reader has taken most.

    Sent as a whole it would be in memory once more per reader, encrypted, under TLS.
    """

    def __init__(
        self, body: bytes, headers: Mapping[str, str], end: Callable[[], None],
        kind: str = "application/octet-stream",
    ) -> None:  # fmt: skip
        super().__init__(memoryview(body), 200, headers, kind)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        size = len(self.body)
        try:
            await send({**start, "headers": self.raw_headers})
            for at in range(0, size, PIECE):
                piece = {"body": self.body[at : at + PIECE], "more_body": at + PIECE < size}
                await send({"type": "http.response.body", **piece})
        finally:
            self._end()


class Copies:
    """The page's one large script: few copies per address, within the memory of all readers."""

    def __init__(self, pieces: Pool, clock: Callable[[], float] = time.monotonic) -> None:
        told = "This address has had too many copies of the script."
        self._pace = Pace(COPIES_PER_MINUTE, COPIES, clock, told)
        self._pieces, self._once = pieces, asyncio.Lock()
        self._script: Asset | None = None

    async def script(self) -> Asset | None:
        """Compressed by the first who asks, in a thread: it takes a while."""
        async with self._once:
            self._script = self._script or await asyncio.to_thread(plotly)
        return self._script

    async def begin(
        self, address: str, script: Asset, stop: Callable[[], None]
    ) -> Callable[[], None]:
        """Count a copy; what is returned must be called when it is sent, or cannot be.

        Who had too many is told so after a pause: asking again at once would cost the server more
        than the answer that it waits for.
        """
        key = key_of(None, address)
        try:
            self._pace.take(key)
        except Refusal:
            await asyncio.sleep(PAUSE_S)
            raise
        piece = self._pieces.take(key, min(len(script.body), PIECE + BUFFER), stop)
        return lambda: self._pieces.end(piece)


@dataclass(eq=False, slots=True)
class Reader:
    """Somebody to whom a model is being sent."""

    key: str
    model: PublishedModel
    stop: Callable[[], None]  # hangs up


def readers() -> Pool:
    """The memory for what all readers are being sent."""
    return Pool(READERS_BYTES, "Too many models are being sent.")


class Sending:
    """Limits what is sent, fairly by key: a worker, where a token proves it, or an address.

    If one version more would be too many, whoever reads the most of them loses its oldest to
    somebody who reads fewer. Among equals a new reader gets a version that is being sent already.
    """

    def __init__(
        self, per_key: int, versions: int, model_bytes: int, *, pieces: Pool | None = None,
        run: str = "",
    ) -> None:  # fmt: skip
        self._per_key, self._run = per_key, run
        self._versions = max(versions, VERSIONS_BYTES // model_bytes)
        self._pieces = pieces or readers()
        self._now: Counter[str] = Counter()
        self._readers: dict[str, list[Reader]] = {}  # by ETag, the oldest version first

    def newest(self, key: str, model: PublishedModel) -> PublishedModel:
        """The newest version that can be sent to this key; ``model`` if there is room for it."""
        if self._has_room(key, model):
            return model
        return next(reversed(self._readers.values()))[0].model

    def begin(
        self, key: str, model: PublishedModel, stop: Callable[[], None]
    ) -> Callable[[], None]:
        """Count a reader; what is returned must be called when it has the model, or has left."""
        if self._now[key] >= self._per_key:
            raise busy(1.0, f"{self._per_key} models are being sent to you already.")
        if not self._has_room(key, model):
            raise busy(1.0, "Too many versions are being sent.")
        reader = Reader(key, model, stop)
        piece = self._pieces.take(key, min(len(model.body), PIECE + BUFFER), stop, run=self._run)
        self._now[key] += 1
        self._readers.setdefault(model.etag, []).append(reader)

        def end() -> None:
            self._pieces.end(piece)
            self._now[key] -= 1
            if not self._now[key]:
                del self._now[key]
            self._forget(reader)

        return end

    def _has_room(self, key: str, model: PublishedModel) -> bool:
        if model.etag in self._readers or len(self._readers) < self._versions:
            return True
        return self._stop_oldest_of_most(key)

    def _stop_oldest_of_most(self, key: str) -> bool:
        """Stop sending a version to the key that reads the most of them, if that is fair."""
        held = Counter(key for same in self._readers.values() for key in {r.key for r in same})
        most, count = held.most_common(1)[0]
        alone = (same for same in self._readers.values() if all(r.key == most for r in same))
        oldest = next(alone, None)
        if oldest is None or count <= held[key] + 1:
            return False
        for reader in [*oldest]:
            self._forget(reader)
            reader.stop()
        return True

    def _forget(self, reader: Reader) -> None:
        same = self._readers.get(reader.model.etag, [])
        if reader in same:
            same.remove(reader)
            if not same:
                del self._readers[reader.model.etag]
