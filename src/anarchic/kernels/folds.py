"""What rules do with vectors of the size of a model, in pieces that stay in a cache.

Each gives the bytes of its twin in core. Where Numba is installed and vectors are long, a compiled
loop does a piece in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.kernels import loops
from anarchic.kernels.chunks import CHUNK, SHARED, STRETCH, scratch, sweep

Vector = NDArray[Any]
_DOT = 1 << 13  # numbers per product: one thread adds this few, and float32 is exact enough
_ROUGHLY = 1e-3  # 2^14 roundings of 6e-8 in a sum, STRETCH / loops.SUMS, halved by the root


def add_scaled(total: Vector, rows: NDArray[Any], factors: NDArray[np.float64]) -> None:
    """``total += factor * row``; a matrix product would be another sum, to the last bit."""
    scales = factors.astype(total.dtype)
    if loops.suit(total, *rows):
        chunk = STRETCH if len(rows) == 1 else CHUNK
        sweep(len(total), lambda at: _loop_over(total[at], rows[:, at], scales), chunk=chunk)
    elif len(rows) == 1:
        # In a large model only the scaled piece is used twice, so pieces may be longer.
        chunk = 2 * CHUNK if len(total) > SHARED else CHUNK
        row, scale = rows[0], scales[0]
        sweep(len(total), lambda at: _add_row(total[at], row[at], scale), chunk=chunk)
    else:
        sweep(len(total), lambda at: _add_rows(total[at], rows[:, at], scales))


def _loop_over(total: Vector, rows: NDArray[Any], scales: Vector) -> None:
    for row, scale in zip(rows, scales, strict=True):
        loops.add_scaled(total, row, scale)


def _add_row(total: Vector, row: Vector, scale: Any) -> None:
    scaled = scratch(len(total), total.dtype)
    np.multiply(row, scale, out=scaled)
    np.add(total, scaled, out=total)


def _add_rows(total: Vector, rows: NDArray[Any], scales: Vector) -> None:
    width = len(total)
    # Reducing a matrix of one column, or of float16, is not a sum of one row after another.
    most = max(1, CHUNK // width) if width > 1 and total.dtype.itemsize > 2 else 1
    for first in range(0, len(rows), most):
        some, scale = rows[first : first + most], scales[first : first + most]
        if len(some) == 1:
            _add_row(total, some[0], scale[0])
            continue
        terms = scratch((len(some) + 1) * width, total.dtype).reshape(-1, width)
        terms[0] = total
        np.multiply(some, scale[:, None], out=terms[1:])
        np.add.reduce(terms, axis=0, out=total)


def norms(matrix: NDArray[Any]) -> NDArray[np.float64]:
    """The norm of every row, its pieces shared by threads."""
    dtype, (rows, dim) = np.result_type(matrix.dtype, np.float32), matrix.shape
    sums = np.zeros((rows, max(1, -(-dim // CHUNK))))

    def work(where: slice) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for row, found in zip(matrix, sums, strict=True):
                part = row[where]
                # Row by row: over a matrix, einsum adds in another order than over its rows.
                found[where.start // CHUNK] = np.einsum("i,i->", part, part, dtype=dtype)

    sweep(dim, work)
    found: NDArray[np.float64] = np.sqrt(sums.sum(1))
    return found


def norms_at_most(matrix: NDArray[Any]) -> NDArray[np.float64]:
    """A little more than the norms, in half the time: by BLAS or a compiled loop."""
    if matrix.dtype.itemsize < 4:
        return norms(matrix)
    if matrix.shape[1] > _DOT:
        return np.array([_norm_at_most(row) for row in matrix], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        one = len(matrix) == 1
        squares: Any = [np.dot(matrix[0], matrix[0])] if one else _row_products(matrix)
        bounds: NDArray[np.float64] = np.sqrt(squares, dtype=np.float64)
        return bounds * (1 + _ROUGHLY)


def _norm_at_most(vector: Vector) -> float:
    sums = [0.0] * -(-len(vector) // STRETCH)
    sum_of_squares = loops.sum_of_squares if loops.suit(vector) else _sum_of_squares

    def work(where: slice) -> None:
        sums[where.start // STRETCH] = sum_of_squares(vector[where])

    sweep(len(vector), work, chunk=STRETCH)
    return math.sqrt(sum(sums)) * (1 + _ROUGHLY)


def _sum_of_squares(part: Vector) -> float:
    body = len(part) - len(part) % _DOT
    with np.errstate(over="ignore", invalid="ignore"):
        products = _row_products(part[:body].reshape(-1, _DOT))
        rest = float(np.dot(part[body:], part[body:]))
        return float(products.sum(dtype=np.float64) + rest)


def _row_products(matrix: NDArray[Any]) -> Vector:
    """The product of every row with itself."""
    found: Vector = np.matmul(matrix[:, None, :], matrix[:, :, None])[:, 0, 0]
    return found


def exchange(total: Vector, exchanges: Sequence[Any]) -> None:
    """Write rows, and bring their sum up to date."""
    looped = all(loops.suit(total, each.row, each.direction) for each in exchanges)
    one = _exchange_compiled if looped else _exchange

    def work(where: slice) -> None:
        for row, known, direction, local_lr in exchanges:
            one(total[where], row[where], known, direction[where], local_lr)

    sweep(len(total), work, chunk=STRETCH if looped and len(exchanges) == 1 else CHUNK)


def _exchange_compiled(
    total: Vector, row: Vector, known: bool, direction: Vector, local_lr: float
) -> None:
    loops.exchange(total, row, direction, local_lr, known=known)


def _exchange(total: Vector, row: Vector, known: bool, direction: Vector, local_lr: float) -> None:
    if known:
        np.subtract(total, _wide(row, total), out=total)
    np.multiply(direction, local_lr, out=row, dtype=row.dtype)
    np.add(total, _wide(row, total), out=total)


def take_away(total: Vector, row: Vector) -> None:
    """``total -= row``."""

    def work(where: slice) -> None:
        part = total[where]
        part -= _wide(row[where], part)

    sweep(len(total), work)


def _wide(row: Vector, like: Vector) -> Vector:
    """``row`` in the dtype of ``like``: adding numbers of two kinds takes NumPy twice the time."""
    if row.dtype == like.dtype:
        return row
    wide = scratch(len(row), like.dtype)
    np.copyto(wide, row)
    return wide


def stepped(
    params: Vector, total: Vector, moments: Any, by: float, step: Any, lr: float, clear: bool
) -> Vector:
    """Parameters after a step along ``total / by``, which is never there as a whole."""
    found = np.empty_like(params)

    def work(where: slice) -> None:
        mean = found[where]
        np.divide(total[where], by, out=mean, casting="same_kind")
        if clear:
            total[where] = 0
        change = step.change(mean, lr, {name: m[where] for name, m in moments.items()})
        np.subtract(params[where], change, out=mean, dtype=params.dtype)

    sweep(len(params), work)
    return found
