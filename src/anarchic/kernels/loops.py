"""Compiled loops for rules and draws: one pass through the memory where NumPy needs several.

Each does, number by number, what its twin in NumPy does, in the same order and with the same
roundings, so it gives the same bytes. Only ``sum_of_squares`` adds in another order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.kernels.compiled import CAN_COMPILE, compiled

SUMS = 64  # made side by side: with one alone, each addition waits for the one before
LARGE = 1 << 22  # numbers in a model for which Numba's 0.8 s and 120 MB are little
MANY = 2_000_000_000  # numbers folded in a run, after which the 0.8 s are won back
_at_least = LARGE
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def shortest() -> int:
    """The loops are used on vectors that are longer than this."""
    return _at_least


def use_from(length: int) -> None:
    """Use the loops on vectors longer than ``length``; ``switches.expected_folds`` puts it back."""
    global _at_least
    _at_least = length


def suit(*vectors: Any) -> bool:
    """Whether vectors can be given to the loops, and are long enough for it to be worth it."""
    return CAN_COMPILE and all(
        isinstance(vector, np.ndarray)
        and len(vector) > _at_least
        and vector.dtype in _DTYPES
        and vector.flags.c_contiguous
        and vector.flags.aligned
        for vector in vectors
    )


def prepare(params: Any) -> None:
    """Compile now what folding updates of these parameters takes, not while a worker waits."""
    if suit(params):
        none = params[:0].copy()
        add_scaled(none, none, none.dtype.type(1))
        exchange(none.astype(np.float64), none, none, 1.0, known=True)
        sum_of_squares(none)


def add_scaled(total: NDArray[Any], row: NDArray[Any], scale: Any) -> None:
    """``total += scale * row``."""
    _add_scaled(total, _only_read(row), scale)


def exchange(
    total: NDArray[Any], row: NDArray[Any], direction: NDArray[Any], local_lr: float, *, known: bool
) -> None:
    """``total -= row``, if it is ``known``; ``row = local_lr * direction``; ``total += row``."""
    _exchange(total, row, _only_read(direction), row.dtype.type(local_lr), known)


def sum_of_squares(vector: NDArray[Any]) -> float:
    """In the dtype of ``vector``, in ``SUMS`` parts."""
    return float(_sum_of_squares(_only_read(vector)))


def _only_read(vector: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to: Numba would compile once for each kind otherwise."""
    view = vector.view(np.ndarray)
    view.flags.writeable = False
    return view


@compiled
def _add_scaled(total: Any, row: Any, scale: Any) -> None:
    for i in range(len(total)):
        total[i] += scale * row[i]


@compiled
def _exchange(total: Any, row: Any, direction: Any, scale: Any, known: Any) -> None:
    for i in range(len(total)):
        new = scale * direction[i]
        rest = total[i] - row[i] if known else total[i]
        total[i] = rest + new
        row[i] = new


@compiled
def _sum_of_squares(vector: Any) -> Any:
    sums = np.zeros(SUMS, vector.dtype)
    body = len(vector) - len(vector) % SUMS
    for start in range(0, body, SUMS):
        for i in range(SUMS):
            sums[i] += vector[start + i] * vector[start + i]
    for i in range(body, len(vector)):
        sums[i - body] += vector[i] * vector[i]
    return sums.sum()


def philox_words(
    shape: tuple[int, int, int], stream: int, visit: Any, worker: Any, key: tuple[Any, Any]
) -> NDArray[np.int64]:
    """(lanes, steps, 4 * blocks) random words; ``key`` is that of all lanes, or one each."""
    words = np.empty(shape, np.int64)
    low, high = (np.full(len(words), np.ravel(word), np.int64) for word in key)
    _fill_words(words, stream, visit.astype(np.int64), worker.astype(np.int64), low, high)
    return words


@compiled
def _fill_words(words: Any, stream: int, visit: Any, worker: Any, low: Any, high: Any) -> None:
    """``train.draws.philox`` of one counter after another, into words (lanes, steps, 4 * blocks).

    In NumPy these are a hundred calls, which cost more than the numbers.
    """
    for lane in range(words.shape[0]):
        for step in range(words.shape[1]):
            for first in range(0, words.shape[2], 4):
                c0, c1, c2, c3 = first // 4, step | stream, visit[lane], worker[lane]
                k0, k1 = low[lane], high[lane]
                for _ in range(10):
                    p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
                    c0, c1 = ((p1 >> 32) ^ c1 ^ k0) & 0xFFFFFFFF, p1
                    c2, c3 = ((p0 >> 32) ^ c3 ^ k1) & 0xFFFFFFFF, p0
                    k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
                words[lane, step, first], words[lane, step, first + 1] = c0, c1 & 0xFFFFFFFF
                words[lane, step, first + 2], words[lane, step, first + 3] = c2, c3 & 0xFFFFFFFF
