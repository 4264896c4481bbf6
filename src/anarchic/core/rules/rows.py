"""The memory of AFA-CS: the last row of every worker, in the order in which they were heard."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.arrays import like_that, on_host, zeros
from anarchic.core.types import Matrix, Vector

BLOCK_BYTES = 1 << 22  # rows are allocated by blocks of about this size, so growth never copies


class Rows(Protocol):
    """One row a worker, however and wherever it is kept."""

    def __len__(self) -> int: ...

    def get(self, worker: str) -> Vector | None:
        """The worker's row, to be read before the next ``put``; None if it has none."""

    def put(self, worker: str, row: Vector, version: int) -> None:
        """Copy ``row`` in, heard at ``version``; the worker becomes the last heard."""

    def remove(self, worker: str) -> None:
        """Forget a worker that has a row."""

    def longest_silent(self) -> tuple[str, int]:
        """The worker heard least recently, and the version at which that was."""

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON-able numbers from which ``unpack`` makes the same rows."""

    def unpack(self, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> Rows: ...


@final
class MemoryRows:
    """Rows in memory, where the parameters lie; O(d) an operation, whatever the workers."""

    def __init__(self, like: Vector) -> None:
        self._like = zeros(like, (0,))  # for its kind and dtype
        self._dim = len(like)
        self._per_block = max(1, BLOCK_BYTES // max(1, self._dim * like.dtype.itemsize))
        self._blocks: list[Matrix] = []
        self._free: list[int] = []
        # worker -> (slot, version), the last heard last. Not a dict: there the first key is found
        # by walking over every key that was ever taken out before it.
        self._heard: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heard)

    def get(self, worker: str) -> Vector | None:
        entry = self._heard.get(worker)
        return None if entry is None else self._row(entry[0])

    def put(self, worker: str, row: Vector, version: int) -> None:
        entry = self._heard.get(worker)
        slot = self._new_slot() if entry is None else entry[0]
        self._row(slot)[:] = row
        self._heard[worker] = (slot, version)
        self._heard.move_to_end(worker)

    def remove(self, worker: str) -> None:
        self._free.append(self._heard.pop(worker)[0])

    def longest_silent(self) -> tuple[str, int]:
        worker, (_, version) = next(iter(self._heard.items()))
        return worker, version

    def heard(self) -> dict[str, int]:
        """Every worker, and the version at which it was last heard; the last heard last."""
        return {worker: version for worker, (_, version) in self._heard.items()}

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        matrix = zeros(self._like, (len(self), self._dim))
        for index, (slot, _) in enumerate(self._heard.values()):
            matrix[index] = self._row(slot)
        versions = np.array([version for _, version in self._heard.values()], np.int64)
        return {"rows": on_host(matrix), "heard": versions}, {"workers": list(self._heard)}

    def unpack(self, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> MemoryRows:
        rows = MemoryRows(zeros(self._like, (self._dim,)))
        for worker, row, version in zip(
            numbers["workers"], arrays["rows"], arrays["heard"].tolist(), strict=True
        ):
            rows.put(worker, like_that(row, self._like), version)
        return rows

    def _row(self, slot: int) -> Vector:
        block, row = divmod(slot, self._per_block)
        found: Vector = self._blocks[block][row]
        return found

    def _new_slot(self) -> int:
        if not self._free:
            start = len(self._blocks) * self._per_block
            self._blocks.append(zeros(self._like, (self._per_block, self._dim)))
            self._free = list(range(start + self._per_block - 1, start - 1, -1))
        return self._free.pop()
