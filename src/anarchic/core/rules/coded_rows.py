"""Rows of AFA-CS in fewer bytes: float16 or int8, with one scale for every 256 numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from anarchic.core.rules import rows
from anarchic.core.rules.rows import Arrays, Exchange, Numbers, Row, SlotRows
from anarchic.core.types import Matrix, Vector
from anarchic.errors import ConfigError
from anarchic.kernels import loops

GROUP = 256  # numbers that share a scale


class CodedRow:
    """A row that decodes what is read from it and encodes what is written to it.

    Slices start at whole groups and end at them or at the end of the row.
    """

    def __init__(self, kind: CodedRows, codes: NDArray[Any], scales: NDArray[Any]) -> None:
        self._kind, self._codes, self._scales = kind, codes, scales
        self.dtype = kind.dtype

    def __getitem__(self, where: slice) -> Vector:
        codes, scales, length = self._cut(where)
        found: Vector = (codes * scales[:, None]).astype(self.dtype, copy=False)
        return found.reshape(-1)[:length]

    def __setitem__(self, where: slice, values: Vector) -> None:
        codes, scales, length = self._cut(where)
        whole = length // GROUP
        self._encode(values[: whole * GROUP].reshape(-1, GROUP), codes[:whole], scales[:whole])
        if whole < len(codes):
            rest = np.zeros((1, GROUP), self.dtype)
            rest[0, : length - whole * GROUP] = values[whole * GROUP :]
            self._encode(rest, codes[whole:], scales[whole:])

    def suits(self, total: Vector, direction: Vector) -> bool:
        """Whether ``loop_over`` can be called."""
        return self._kind.loops_over(total, direction) and direction.dtype == self.dtype

    def loop_over(self, total: Vector, where: slice, each: Exchange) -> None:
        """The exchange of the numbers that are ``where``, compiled."""
        codes, scales, length = self._cut(where)
        whole, end = length // GROUP, length - length % GROUP
        self._kind.loop(
            total[:end].reshape(-1, GROUP),
            codes[:whole],
            scales[:whole],
            each.direction[where][:end].reshape(-1, GROUP),
            each.local_lr,
            known=each.known,
        )
        if end < length:
            rows.exchange_piece(total[end:], slice(where.start + end, where.stop), each)

    def holds(self, codes: NDArray[Any]) -> bool:
        return self._codes.ctypes.data == codes.ctypes.data

    def _cut(self, where: slice) -> tuple[NDArray[Any], NDArray[Any], int]:
        start, stop, _ = where.indices(self._kind.dim)
        assert start % GROUP == 0
        assert stop % GROUP == 0 or stop == self._kind.dim
        groups = slice(start // GROUP, -(-stop // GROUP))
        return self._codes[groups], self._scales[groups], stop - start

    def _encode(self, values: Matrix, codes: NDArray[Any], scales: NDArray[Any]) -> None:
        np.maximum(values.max(1, initial=0), -values.min(1, initial=0), out=scales)
        np.abs(scales, out=scales)  # of zeros, the greater may be the one with a sign
        scales /= self._kind.largest
        # A scale of nothing codes nothing: of zeros, or of numbers too small to have a scale.
        divisors = np.where(scales > 0, scales, np.inf)[:, None]
        self._kind.round_into(codes, values / divisors)


class CodedRows(SlotRows):
    """Rows as codes times the scale of their group, its largest number being ``largest`` in it."""

    code: type[np.generic]
    largest: float
    loop: ClassVar[Callable[..., None]]  # one of ``loops``

    def __init__(self, like: Vector) -> None:
        if not isinstance(like, np.ndarray):
            raise ConfigError("Coded rows are for models in main memory: use rows='memory'.")
        super().__init__()
        self.dim, self.dtype = len(like), like.dtype
        self._groups = -(-self.dim // GROUP)
        row_bytes = self._groups * GROUP * np.dtype(self.code).itemsize
        self._per_block = max(1, rows.BLOCK_BYTES // max(1, row_bytes))
        self._codes: list[NDArray[Any]] = []  # (rows, groups, GROUP)
        self._scales: list[NDArray[Any]] = []  # (rows, groups)
        if self.loops_over(like):
            self._prepare()

    @staticmethod
    @abstractmethod
    def round_into(codes: NDArray[Any], values: Matrix) -> None:
        """The codes nearest to ``values``, which are at most ``largest``."""

    def loops_over(self, *vectors: Vector) -> bool:
        """Whether the loop can be used; it gives the bits that reading and writing rows give."""
        return self.dtype == np.float32 and loops.suit(*vectors)

    def _prepare(self) -> None:
        """Compile now, not while a worker waits."""
        none = np.zeros((0, GROUP), np.float32)
        total, codes = none.astype(np.float64), none.astype(self.code)
        self.loop(total, codes, none.reshape(-1), none, 1.0, known=True)

    def pack(self) -> tuple[Arrays, Numbers]:
        codes = np.zeros((len(self), self._groups, GROUP), self.code)
        scales = np.zeros((len(self), self._groups), self._scale_dtype)
        for index, (slot, _) in enumerate(self._heard.values()):
            codes[index], scales[index] = self._at(slot)
        arrays, numbers = self._pack_heard()
        return {"codes": codes, "scales": scales, **arrays}, numbers

    def unpack(self, arrays: Arrays, numbers: Numbers) -> CodedRows:
        again = type(self)(np.zeros(self.dim, self.dtype))
        for worker, codes, scales, version in zip(
            numbers["workers"],
            arrays["codes"],
            arrays["scales"],
            arrays["heard"].tolist(),
            strict=True,
        ):
            slot = again._new_slot()
            again._heard[worker] = (slot, version)
            kept_codes, kept_scales = again._at(slot)
            kept_codes[:], kept_scales[:] = codes, scales
        return again

    @property
    def _scale_dtype(self) -> np.dtype[Any]:
        return np.result_type(self.dtype, np.float32)

    def _at(self, slot: int) -> tuple[NDArray[Any], NDArray[Any]]:
        block, row = divmod(slot, self._per_block)
        return self._codes[block][row], self._scales[block][row]

    def _row(self, slot: int) -> CodedRow:
        return CodedRow(self, *self._at(slot))

    def _fill(self, slot: int, row: Row) -> None:
        kept = self._row(slot)
        if not (isinstance(row, CodedRow) and row.holds(self._at(slot)[0])):
            kept[:] = row[:]

    def _grow(self) -> int:
        self._codes.append(np.zeros((self._per_block, self._groups, GROUP), self.code))
        self._scales.append(np.zeros((self._per_block, self._groups), self._scale_dtype))
        return self._per_block


@final
class HalfRows(CodedRows):
    """Rows as float16: half the memory of float32.

    A number is off by at most 2^-11 of itself plus 2^-25 of the largest in its group of 256, and
    by the rounding of the model's dtype; of groups below 1e-38, all may be lost.
    """

    code = np.float16
    largest = 1.0
    loop = staticmethod(loops.exchange_halves)

    def loops_over(self, *vectors: Vector) -> bool:
        return super().loops_over(*vectors) and loops.can_halve()

    @staticmethod
    def round_into(codes: NDArray[Any], values: Matrix) -> None:
        codes[:] = values


@final
class ByteRows(CodedRows):
    """Rows as int8: a quarter of the memory of float32.

    A number is off by at most 1/254 of the largest in its group of 256, and by the rounding of
    the model's dtype; of groups below 1e-36, all may be lost.
    """

    code = np.int8
    largest = 127.0
    loop = staticmethod(loops.exchange_bytes)

    @staticmethod
    def round_into(codes: NDArray[Any], values: Matrix) -> None:
        codes[:] = np.rint(values, out=values).clip(-127, 127, out=values)
