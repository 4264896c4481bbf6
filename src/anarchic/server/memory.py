"""The memory of AFA-CS in a server: rows that know which of them the store has not seen."""

from __future__ import annotations

import struct
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.rules.rows import MemoryRows
from anarchic.core.types import Vector
from anarchic.errors import StoreCorrupt

# In the store a row comes after its place in the order of hearing and the version it was heard at:
# a list of all workers, in the state, would be written anew at every publication.
_HEAD = struct.Struct("<qq")


@final
class TrackedRows:
    """Rows in memory that pack as their number: a store keeps them one by one."""

    def __init__(self, like: Vector) -> None:
        self._dim, self._dtype = len(like), like.dtype
        self._rows = MemoryRows(like)
        self._place = 0  # of the last heard; it only grows
        self._changed: dict[str, bytes] = {}  # worker -> head
        self._removed: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, worker: str) -> Vector | None:
        return self._rows.get(worker)

    def put(self, worker: str, row: Vector, version: int) -> None:
        self._rows.put(worker, row, version)
        self._place += 1
        self._changed[worker] = _HEAD.pack(self._place, version)
        self._removed.discard(worker)

    def remove(self, worker: str) -> None:
        self._rows.remove(worker)
        self._changed.pop(worker, None)
        self._removed.add(worker)

    def longest_silent(self) -> tuple[str, int]:
        return self._rows.longest_silent()

    def changes(self) -> tuple[dict[str, bytes], list[str]]:
        """Rows that were put and workers that were removed since ``seen``."""
        rows = {worker: self._rows.get(worker) for worker in self._changed}
        changed = {w: self._changed[w] + row.data for w, row in rows.items() if row is not None}
        return changed, [*self._removed]

    def seen(self) -> None:
        """The store holds what ``changes`` named."""
        self._changed.clear()
        self._removed.clear()

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return {}, {"workers": len(self), "place": self._place}

    def unpack(self, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> TrackedRows:
        """``arrays`` are the bytes of the store's rows, by worker."""
        rows = TrackedRows(np.zeros(self._dim, self._dtype))
        size = _HEAD.size + self._dim * self._dtype.itemsize
        if len(arrays) != numbers["workers"] or any(len(row) != size for row in arrays.values()):
            raise StoreCorrupt(
                f"The state counts on {numbers['workers']} rows of {size} bytes, and the store has "
                f"{len(arrays)}, or some of another size: restore the store from a copy."
            )
        heads = {
            worker: _HEAD.unpack(row[: _HEAD.size].tobytes()) for worker, row in arrays.items()
        }
        for worker, (_, version) in sorted(heads.items(), key=lambda item: item[1]):
            rows.put(worker, arrays[worker][_HEAD.size :].view(self._dtype), version)
        rows._place = numbers["place"]
        rows.seen()
        return rows
