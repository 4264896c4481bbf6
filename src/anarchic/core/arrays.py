"""The few operations in which arrays of different kinds differ.

A rule folds vectors wherever they lie: NumPy arrays, or torch tensors on a GPU, so that a simulated
round need not travel to the host and back. Whatever is not a NumPy array is taken for a tensor;
only its methods are used, torch itself is never imported here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.kernels import loops
from anarchic.kernels.chunks import CHUNK, SHARED, STRETCH, scratch, sweep

Array = Any  # a NumPy array or a torch tensor


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "new_zeros")


def readable(array: Array) -> bool:
    """Whether its numbers can be read without waiting for a GPU."""
    return isinstance(array, np.ndarray) or not array.is_cuda


def copied(array: Array) -> Array:
    return array.copy() if isinstance(array, np.ndarray) else array.clone()


def zeros(like: Array, shape: tuple[int, ...] | None = None, *, double: bool = False) -> Array:
    """Zeros of the kind and, unless ``double`` asks for float64, the dtype of ``like``."""
    shape = tuple(like.shape) if shape is None else shape
    if isinstance(like, np.ndarray):
        return np.zeros(shape, np.float64 if double else like.dtype)
    found = like.new_zeros(shape)
    return found.double() if double else found


def stack(vectors: Sequence[Array]) -> Array:
    """(n, dim) from n vectors of one kind."""
    first = vectors[0]
    if isinstance(first, np.ndarray):
        return np.stack(vectors)
    matrix = first.new_empty((len(vectors), *first.shape))
    for row, vector in zip(matrix, vectors, strict=True):
        row[:] = vector
    return matrix


def times(array: Array, factor: float, like: Array) -> Array:
    """``factor * array`` in the dtype of ``like``, however narrow or wide the two are."""
    if isinstance(array, np.ndarray):
        return np.multiply(array, factor, dtype=like.dtype)
    return array.to(like.dtype) * factor


def sqrt(array: Array) -> Array:
    return np.sqrt(array) if isinstance(array, np.ndarray) else array.sqrt()


def sign(array: Array) -> Array:
    return np.sign(array) if isinstance(array, np.ndarray) else array.sign()


def add_scaled(total: Array, rows: Array, factors: NDArray[np.float64]) -> None:
    """``total += factor * row`` for one row after another: one pass, no temporary of its size.

    A matrix product would be another sum, to the last bit.
    """
    if not isinstance(total, np.ndarray):
        for row, factor in zip(rows, factors.tolist(), strict=True):
            total += times(row, factor, total)
        return
    scales = factors.astype(total.dtype)
    if loops.suit(total, *rows):
        sweep(
            len(total),
            lambda where: _loop_over(total[where], rows[:, where], scales),
            chunk=STRETCH if len(rows) == 1 else CHUNK,
        )
    elif len(rows) == 1:
        # In a large model only the scaled piece is used twice, so pieces may be longer.
        chunk = 2 * CHUNK if len(total) > SHARED else CHUNK
        row, scale = rows[0], scales[0]
        sweep(len(total), lambda where: _add_row(total[where], row[where], scale), chunk=chunk)
    else:
        sweep(len(total), lambda where: _add_rows(total[where], rows[:, where], scales))


def _loop_over(total: NDArray[Any], rows: NDArray[Any], scales: NDArray[Any]) -> None:
    for row, scale in zip(rows, scales, strict=True):
        loops.add_scaled(total, row, scale)


def _add_row(total: NDArray[Any], row: NDArray[Any], scale: Any) -> None:
    scaled = scratch(len(total), total.dtype)
    np.multiply(row, scale, out=scaled)
    np.add(total, scaled, out=total)


def _add_rows(total: NDArray[Any], rows: NDArray[Any], scales: NDArray[Any]) -> None:
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


def norms(matrix: Array) -> NDArray[np.float64]:
    """The norm of every row. Not by BLAS, whose sums change with the number of threads."""
    if not isinstance(matrix, np.ndarray):
        # In float64 the squares of float32 cannot overflow; the list is one trip to the host.
        return np.array(matrix.double().square().sum(1).sqrt().tolist(), np.float64)

    # float16 would overflow at a norm of 256
    dtype = np.result_type(matrix.dtype, np.float32)
    rows, dim = matrix.shape
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


def norms_at_most(matrix: Array) -> NDArray[np.float64]:
    """A little more than the norm of every row, in half the time: by BLAS or a compiled loop.

    How much more may change with the machine: to be compared with, not to be computed with.
    NaN or infinity where a row has one.
    """
    if not isinstance(matrix, np.ndarray) or matrix.dtype.itemsize < 4:
        return norms(matrix)
    if matrix.shape[1] > _DOT:
        return np.array([norm_at_most(row) for row in matrix], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        bounds: NDArray[np.float64] = np.sqrt(_row_products(matrix), dtype=np.float64)
        return bounds * (1 + _ROUGHLY)


def norm_at_most(vector: Array) -> float:
    """The same for one vector."""
    if not isinstance(vector, np.ndarray) or vector.dtype.itemsize < 4:
        return float(norms(vector[None])[0])
    if len(vector) <= _DOT:
        with np.errstate(over="ignore", invalid="ignore"):
            return math.sqrt(np.dot(vector, vector)) * (1 + _ROUGHLY)
    sums = [0.0] * -(-len(vector) // STRETCH)
    sum_of_squares = loops.sum_of_squares if loops.suit(vector) else _sum_of_squares

    def work(where: slice) -> None:
        sums[where.start // STRETCH] = sum_of_squares(vector[where])

    sweep(len(vector), work, chunk=STRETCH)
    return math.sqrt(sum(sums)) * (1 + _ROUGHLY)


_DOT = 1 << 13  # numbers per product: one thread adds this few, and float32 is exact enough
_ROUGHLY = 1e-3  # 2^14 roundings of 6e-8 in a sum, STRETCH / loops.SUMS, halved by the root


def _sum_of_squares(part: NDArray[Any]) -> float:
    body = len(part) - len(part) % _DOT
    with np.errstate(over="ignore", invalid="ignore"):
        products = _row_products(part[:body].reshape(-1, _DOT))
        rest = float(np.dot(part[body:], part[body:]))
        return float(products.sum(dtype=np.float64) + rest)


def _row_products(matrix: NDArray[Any]) -> NDArray[Any]:
    """The product of every row with itself."""
    found: NDArray[Any] = np.matmul(matrix[:, None, :], matrix[:, :, None])[:, 0, 0]
    return found


def all_finite(array: Array) -> bool:
    if isinstance(array, np.ndarray):
        return bool(np.isfinite(array).all())
    return bool(array.isfinite().all())


def is_floating(array: Array) -> bool:
    if isinstance(array, np.ndarray):
        return np.issubdtype(array.dtype, np.floating)
    return bool(array.is_floating_point())


def fits(array: Array, like: Array) -> bool:
    """Whether the dtype of ``array`` holds nothing that the dtype of ``like`` cannot."""
    if isinstance(array, np.ndarray) and isinstance(like, np.ndarray):
        same = array.dtype == like.dtype
        return same or (is_floating(array) and np.can_cast(array.dtype, like.dtype))
    return not isinstance(array, np.ndarray) and array.dtype == like.dtype


def square_limit(like: Array) -> float:
    """The largest number whose square the dtype of ``like`` holds."""
    return math.sqrt(float(np.finfo(dtype_of(like)).max))


def on_host(array: Array) -> NDArray[Any]:
    """As a NumPy array; the same one if it is one."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def dtype_of(array: Array) -> np.dtype[Any]:
    """Its dtype, in NumPy's words."""
    if isinstance(array, np.ndarray):
        found: np.dtype[Any] = array.dtype
        return found
    return np.dtype(str(array.dtype).removeprefix("torch."))


def like_that(array: NDArray[Any], like: Array) -> Array:
    """The way back: ``array`` where ``like`` lies."""
    return array if isinstance(like, np.ndarray) else like.new_tensor(array)
