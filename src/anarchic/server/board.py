"""What workers see: the newest version, as the bytes that they pull.

Only these are kept in memory. Versions before it are in the store, and read when somebody wants
one: a board that kept them would hold the model as many times as the run has a history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anarchic import wire
from anarchic.core.types import Snapshot


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Posted:
    """A published version, as workers pull it."""

    run: str
    version: int
    body: bytes
    loss: float | None  # the mean of what the workers told with the updates in it

    @classmethod
    def of(cls, run: str, version: int, body: bytes) -> Posted:
        return cls(run, version, body, wire.snapshot_loss(body))

    @property
    def etag(self) -> str:
        return f'"{self.run}-{self.version}"'

    @property
    def snapshot(self) -> Snapshot:
        """The numbers in it, a copy of the caller's own."""
        return wire.decode_snapshot(self.body)[1]


class Board:
    """Readers take the newest version without a lock; whoever posts one tells the listeners."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._newest: Posted | None = None
        self._listeners: list[Callable[[], object]] = []

    @property
    def newest(self) -> Posted:
        assert self._newest is not None, "the first version is posted before anything is served"
        return self._newest

    @property
    def has_one(self) -> bool:
        return self._newest is not None

    def post(self, version: int, body: bytes) -> None:
        self._newest = Posted.of(self.run, version, body)
        for listener in list(self._listeners):
            listener()

    def listen(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` after every post, from whatever thread posts."""
        self._listeners.append(listener)
