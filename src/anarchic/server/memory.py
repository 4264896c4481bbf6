"""The memory of AFA-CS in a server: rows that know which of them the store has not seen."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.rules.rows import MemoryRows
from anarchic.core.types import Vector
from anarchic.errors import StoreCorrupt


@final
class TrackedRows:
    """Rows in memory that pack without their vectors: a store keeps those one by one."""

    def __init__(self, like: Vector) -> None:
        self._dim, self._dtype = len(like), like.dtype
        self._rows = MemoryRows(like)
        self._changed: set[str] = set()
        self._removed: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, worker: str) -> Vector | None:
        return self._rows.get(worker)

    def put(self, worker: str, row: Vector, version: int) -> None:
        self._rows.put(worker, row, version)
        self._changed.add(worker)
        self._removed.discard(worker)

    def remove(self, worker: str) -> None:
        self._rows.remove(worker)
        self._changed.discard(worker)
        self._removed.add(worker)

    def longest_silent(self) -> tuple[str, int]:
        return self._rows.longest_silent()

    def changes(self) -> tuple[dict[str, bytes], list[str]]:
        """Rows that were put and workers that were removed since ``seen``."""
        rows = {worker: self._rows.get(worker) for worker in self._changed}
        return {w: row.tobytes() for w, row in rows.items() if row is not None}, [*self._removed]

    def seen(self) -> None:
        """The store holds what ``changes`` named."""
        self._changed.clear()
        self._removed.clear()

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        heard = self._rows.heard()
        return {}, {"workers": list(heard), "heard": list(heard.values())}

    def unpack(self, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> TrackedRows:
        """``arrays`` are the rows of the store, by worker."""
        rows = TrackedRows(np.zeros(self._dim, self._dtype))
        for worker, version in zip(numbers["workers"], numbers["heard"], strict=True):
            if worker not in arrays or arrays[worker].shape != (self._dim,):
                raise StoreCorrupt(
                    f"The state counts on a row of worker {worker!r}, which the store does not "
                    "have: restore the store from a copy."
                )
            rows.put(worker, arrays[worker], version)
        rows.seen()
        return rows
