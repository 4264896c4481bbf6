"""One row for each worker, in the order in which they were heard: what a rule keeps of workers."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.arrays import Array, like_that, on_host, zeros
from anarchic.core.types import Matrix, Vector
from anarchic.errors import RunError

BLOCK_BYTES = 1 << 22  # rows are allocated by blocks of about this size, so growth never copies

# In a store a row comes after its place in the order of hearing and the version it was heard at:
# a list of all workers would have to be written anew at every publication.
_HEAD = struct.Struct("<qq")


class _Heard(NamedTuple):
    slot: int
    version: int
    place: int  # in the order of hearing; it only grows


@final
class WorkerRows:
    """Rows like a vector (length, dtype, NumPy or torch), which know what a store has of them.

    O(d) for each operation, however many workers there are.
    """

    def __init__(self, like: Vector) -> None:
        self._like: Array = zeros(like, (0,))  # for its kind and dtype
        self._dim = len(like)
        self._per_block = max(1, BLOCK_BYTES // max(1, self._dim * like.dtype.itemsize))
        self._blocks: list[Matrix] = []
        self._used = 0  # slots that were ever taken: the first ones
        self._free: list[int] = []  # those of them that were given back
        # The last heard last. Not a dict: there the first key is found by walking over every key
        # that was ever taken out before it.
        self._heard: OrderedDict[str, _Heard] = OrderedDict()
        self._place = 0  # of the last heard
        self._stored = 0  # the place up to which a store has the rows
        self._removed: set[str] = set()  # workers whose rows a store has and we do not

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, worker: str) -> bool:
        return worker in self._heard

    def __iter__(self) -> Iterator[str]:
        """The workers, the one that was silent for the longest first."""
        return iter(self._heard)

    def __getitem__(self, worker: str) -> Vector:
        """The worker's row, until it is removed. It may be written to."""
        return self._row(self._heard[worker].slot)

    def put(self, worker: str, row: Array, version: int) -> None:
        """Copy ``row`` in, heard at ``version``; the worker becomes the last heard.

        A row that was read from here and changed in place is not copied.
        """
        entry = self._heard.get(worker)
        slot = self._new_slot() if entry is None else entry.slot
        kept: Array = self._row(slot)
        # Torch copies a row onto itself, which NumPy does not.
        if isinstance(kept, np.ndarray) or kept.data_ptr() != row.data_ptr():
            kept[:] = row
        self._place += 1
        self._heard[worker] = _Heard(slot, version, self._place)
        self._heard.move_to_end(worker)
        self._removed.discard(worker)

    def remove(self, worker: str) -> None:
        """Forget a worker that has a row."""
        entry = self._heard.pop(worker)
        self._free.append(entry.slot)
        if self._stored:
            self._removed.add(worker)

    def heard_at(self, worker: str) -> int:
        """The version at which a worker that has a row was last heard."""
        return self._heard[worker].version

    def longest_silent(self) -> tuple[str, int]:
        """The worker heard least recently, and the version at which that was."""
        worker, entry = next(iter(self._heard.items()))
        return worker, entry.version

    # All rows at once, as in a checkpoint

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON-able numbers from which ``unpack`` makes the same rows."""
        matrix = zeros(self._like, (len(self), self._dim))
        for index, entry in enumerate(self._heard.values()):
            matrix[index] = self._row(entry.slot)
        versions = np.array([entry.version for entry in self._heard.values()], np.int64)
        return {"rows": on_host(matrix), "heard": versions}, {"workers": list(self._heard)}

    def unpack(self, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, Any]) -> WorkerRows:
        rows = WorkerRows(zeros(self._like, (self._dim,)))
        columns = numbers["workers"], arrays["rows"], arrays["heard"].tolist()
        for worker, row, version in zip(*columns, strict=True):
            rows.put(worker, like_that(row, self._like), version)
        return rows

    # Row by row, as in a store

    @property
    def place(self) -> int:
        """How often a row was put: what a store keeps beside the rows, for ``restore``."""
        return self._place

    def changes(self) -> tuple[dict[str, bytes], list[str]]:
        """Rows that were put and workers that were removed since ``mark_stored``, for a store."""
        changed: dict[str, bytes] = {}
        for worker, entry in reversed(self._heard.items()):
            if entry.place <= self._stored:  # and so are all that were heard before
                break
            row: NDArray[Any] = self._row(entry.slot)
            changed[worker] = _HEAD.pack(entry.place, entry.version) + row.data
        return changed, sorted(self._removed)

    def mark_stored(self) -> None:
        """The store holds what ``changes`` named."""
        self._stored = self._place
        self._removed.clear()

    def restore(self, stored: Mapping[str, bytes], place: int) -> None:
        """Take in what a store has of rows like these, which are empty."""
        size = _HEAD.size + self._dim * self._like.dtype.itemsize
        if any(len(row) != size for row in stored.values()):
            raise RunError(f"A stored row has not the {size} bytes of one of this model.")
        heads = {worker: _HEAD.unpack_from(row) for worker, row in stored.items()}
        for worker, (at, version) in sorted(heads.items(), key=lambda item: item[1]):
            row = np.frombuffer(stored[worker], self._like.dtype, offset=_HEAD.size)
            self._place = at - 1
            self.put(worker, row, version)
        self._place = place
        self.mark_stored()

    def _row(self, slot: int) -> Vector:
        block, row = divmod(slot, self._per_block)
        found: Vector = self._blocks[block][row]
        return found

    def _new_slot(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used == len(self._blocks) * self._per_block:
            self._blocks.append(zeros(self._like, (self._per_block, self._dim)))
        self._used += 1
        return self._used - 1
