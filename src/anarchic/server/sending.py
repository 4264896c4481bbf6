"""The models that are being sent now: how many per puller, how many in all, of how many versions.

A version stays in memory until all its readers have it, and each reader holds a piece of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from anarchic.server.published import PublishedModel
from anarchic.server.refusals import busy
from anarchic.server.slots import Pool

PIECE = 1 << 17  # bytes of a model that are sent at a time
BUFFER = 1 << 16  # that the system lets wait before it
READERS_BYTES = 1 << 27  # of the pieces of all readers
VERSIONS_BYTES = 1 << 26  # of the versions being sent, where these are small


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
