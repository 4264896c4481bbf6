"""The memory of AFA-CS: the last row of every worker, in the order in which they were heard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.arrays import like_that, on_host, times, zeros
from anarchic.core.types import Matrix, Vector
from anarchic.kernels import loops
from anarchic.kernels.chunks import CHUNK, STRETCH, scratch, sweep

BLOCK_BYTES = 1 << 22  # rows are allocated by blocks of about this size, so growth never copies

Arrays = dict[str, NDArray[Any]]
Numbers = dict[str, Any]
Row = Any  # a vector, or what is read and written by slices like one


class Rows(Protocol):
    """One row a worker, however and wherever it is kept."""

    def __len__(self) -> int: ...

    def get(self, worker: str) -> Row | None:
        """The worker's row as it is kept, until it is removed; None if it has none.

        What is written to it is kept too, perhaps rounded: read it back to see how.
        """

    def put(self, worker: str, row: Row, version: int) -> None:
        """Copy ``row`` in, heard at ``version``; the worker becomes the last heard.

        The very row that ``get`` gave is not copied.
        """

    def remove(self, worker: str) -> None:
        """Forget a worker that has a row."""

    def longest_silent(self) -> tuple[str, int]:
        """The worker heard least recently, and the version at which that was."""

    def pack(self) -> tuple[Arrays, Numbers]:
        """Arrays and JSON-able numbers from which ``unpack`` makes the same rows."""

    def unpack(self, arrays: Arrays, numbers: Numbers) -> Rows: ...


class Exchange(NamedTuple):
    """A row that becomes ``local_lr * direction``."""

    row: Row
    known: bool  # whether what is in the row counts already
    direction: Vector
    local_lr: float


def exchange(total: Vector, exchanges: Sequence[Exchange]) -> None:
    """Write rows, one after another, and bring ``total``, the sum of all rows, up to date.

    What is added is what a row has become, rounded as it is kept, so that exactly the same is one
    day taken away.
    """
    if not isinstance(total, np.ndarray):
        for row, known, direction, local_lr in exchanges:
            if known:
                total -= row
            row[:] = times(direction, local_lr, row)
            total += row
        return

    looped = all(_suits(total, each) for each in exchanges)
    one = _loop_over if looped else exchange_piece

    def work(where: slice) -> None:
        for each in exchanges:
            one(total[where], where, each)

    sweep(len(total), work, chunk=STRETCH if looped and len(exchanges) == 1 else CHUNK)


def _suits(total: Vector, each: Exchange) -> bool:
    if isinstance(each.row, np.ndarray):
        return loops.suit(total, each.row, each.direction)
    return hasattr(each.row, "suits") and bool(each.row.suits(total, each.direction))


def _loop_over(total: Vector, where: slice, each: Exchange) -> None:
    if isinstance(each.row, np.ndarray):
        row, direction = each.row[where], each.direction[where]
        loops.exchange(total, row, direction, each.local_lr, known=each.known)
    else:
        each.row.loop_over(total, where, each)


def exchange_piece(total: Vector, where: slice, each: Exchange) -> None:
    """What ``exchange`` does with one row ``where``, ``total`` being the sum there."""
    if each.known:
        np.subtract(total, _wide(each.row[where], total), out=total)
    _write(each.row, where, each.direction, each.local_lr)
    np.add(total, _wide(each.row[where], total), out=total)


def _wide(row: Vector, like: Vector) -> Vector:
    """``row`` in the dtype of ``like``: adding numbers of two kinds takes NumPy twice the time."""
    if row.dtype == like.dtype:
        return row
    wide = scratch(len(row), like.dtype)
    np.copyto(wide, row)
    return wide


def _write(row: Row, where: slice, direction: Vector, local_lr: float) -> None:
    plain = isinstance(row, np.ndarray)
    scaled = row[where] if plain else scratch(where.stop - where.start, row.dtype)
    np.multiply(direction[where], local_lr, out=scaled, dtype=row.dtype)
    if not plain:
        row[where] = scaled


def take_away(total: Vector, row: Row) -> None:
    """``total -= row``."""
    if not isinstance(total, np.ndarray):
        total -= row
        return

    def work(where: slice) -> None:
        part = total[where]
        part -= _wide(row[where], part)

    sweep(len(total), work)


class SlotRows(ABC):
    """Who has which slot, and when they were heard; what a slot is, a kind of rows says.

    O(d) an operation, whatever the workers.
    """

    def __init__(self) -> None:
        self._slots = 0
        self._free: list[int] = []
        # worker -> (slot, version), the last heard last. Not a dict: there the first key is found
        # by walking over every key that was ever taken out before it.
        self._heard: OrderedDict[str, tuple[int, int]] = OrderedDict()

    @abstractmethod
    def _row(self, slot: int) -> Row:
        """The row in a slot."""

    @abstractmethod
    def _fill(self, slot: int, row: Row) -> None:
        """Copy a row into a slot, unless it is the row in that slot."""

    @abstractmethod
    def _grow(self) -> int:
        """Make more slots; how many."""

    def __len__(self) -> int:
        return len(self._heard)

    def get(self, worker: str) -> Row | None:
        entry = self._heard.get(worker)
        return None if entry is None else self._row(entry[0])

    def put(self, worker: str, row: Row, version: int) -> None:
        entry = self._heard.get(worker)
        slot = self._new_slot() if entry is None else entry[0]
        self._fill(slot, row)
        self._heard[worker] = (slot, version)
        self._heard.move_to_end(worker)

    def remove(self, worker: str) -> None:
        self._free.append(self._heard.pop(worker)[0])

    def longest_silent(self) -> tuple[str, int]:
        worker, (_, version) = next(iter(self._heard.items()))
        return worker, version

    def _pack_heard(self) -> tuple[Arrays, Numbers]:
        versions = np.array([version for _, version in self._heard.values()], np.int64)
        return {"heard": versions}, {"workers": list(self._heard)}

    def _new_slot(self) -> int:
        if not self._free:
            start = self._slots
            self._slots += self._grow()
            self._free = list(range(self._slots - 1, start - 1, -1))
        return self._free.pop()


class BlockRows(SlotRows):
    """Rows in the dtype of the model, a matrix of them for each block."""

    def __init__(self, like: Vector) -> None:
        super().__init__()
        self._like = zeros(like, (0,))  # for its kind and dtype
        self._dim = len(like)
        self._per_block = max(1, BLOCK_BYTES // max(1, self._dim * like.dtype.itemsize))

    @abstractmethod
    def _block(self, number: int) -> Matrix:
        """A block of ``_per_block`` rows."""

    @abstractmethod
    def _another(self) -> BlockRows:
        """Rows of the same kind, without any."""

    def pack(self) -> tuple[Arrays, Numbers]:
        matrix = zeros(self._like, (len(self), self._dim))
        for index, (slot, _) in enumerate(self._heard.values()):
            matrix[index] = self._row(slot)
        arrays, numbers = self._pack_heard()
        return {"rows": on_host(matrix), **arrays}, numbers

    def unpack(self, arrays: Arrays, numbers: Numbers) -> BlockRows:
        rows = self._another()
        for worker, row, version in zip(
            numbers["workers"], arrays["rows"], arrays["heard"].tolist(), strict=True
        ):
            rows.put(worker, like_that(row, self._like), version)
        return rows

    def _row(self, slot: int) -> Vector:
        block, row = divmod(slot, self._per_block)
        found: Vector = self._block(block)[row]
        return found

    def _fill(self, slot: int, row: Row) -> None:
        kept = self._row(slot)
        # Torch copies a row onto itself, which NumPy does not.
        if isinstance(kept, np.ndarray) or kept.data_ptr() != row.data_ptr():
            kept[:] = row


@final
class MemoryRows(BlockRows):
    """Rows in memory, where the parameters lie."""

    def __init__(self, like: Vector) -> None:
        super().__init__(like)
        self._blocks: list[Matrix] = []

    def _block(self, number: int) -> Matrix:
        return self._blocks[number]

    def _another(self) -> MemoryRows:
        return MemoryRows(zeros(self._like, (self._dim,)))

    def _grow(self) -> int:
        self._blocks.append(zeros(self._like, (self._per_block, self._dim)))
        return self._per_block
