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

from anarchic.kernels import faster
from anarchic.kernels.chunks import CHUNK as PIECE

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


def as_like(array: Array, like: Array) -> Array:
    """In the dtype of ``like``; the same array if it has that."""
    if isinstance(array, np.ndarray):
        return array.astype(like.dtype, copy=False)
    return array.to(like.dtype)


def times(array: Array, factor: float, like: Array) -> Array:
    """``factor * array`` in the dtype of ``like``, however narrow or wide the two are."""
    if isinstance(array, np.ndarray):
        return np.multiply(array, factor, dtype=like.dtype)
    return array.to(like.dtype) * factor


def sqrt(array: Array) -> Array:
    return np.sqrt(array) if isinstance(array, np.ndarray) else array.sqrt()


def sign(array: Array) -> Array:
    return np.sign(array) if isinstance(array, np.ndarray) else array.sign()


@faster
def add_scaled(total: Array, rows: Array, factors: NDArray[np.float64]) -> None:
    """``total += factor * row`` for one row after another."""
    for row, factor in zip(rows, factors.tolist(), strict=True):
        total += times(row, factor, total)


@faster
def norms(matrix: Array) -> NDArray[np.float64]:
    """The norm of every row. Not by BLAS, whose sums change with the number of threads.

    Sums of ``PIECE`` squares, at least in float32 (float16 would overflow at a norm of 256), are
    added up in float64: that is what the last bits of a norm depend on.
    """
    if not isinstance(matrix, np.ndarray):
        # In float64 the squares of float32 cannot overflow; the list is one trip to the host.
        return np.array(matrix.double().square().sum(1).sqrt().tolist(), np.float64)
    wide = np.result_type(matrix.dtype, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [
            np.array([np.einsum("i,i->", part, part, dtype=wide) for part in _pieces(row)])
            for row in matrix
        ]
    return np.sqrt(np.array([each.sum(dtype=np.float64) for each in sums], np.float64))


def _pieces(row: NDArray[Any]) -> list[NDArray[Any]]:
    return np.split(row, range(PIECE, len(row), PIECE))


@faster
def norms_at_most(matrix: Array) -> NDArray[np.float64]:
    """The norm of every row or a little more; NaN or infinity where a row has one.

    How much more may change with the machine: to be compared with, not to be computed with.
    """
    return norms(matrix)


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


def places_in(array: Array, places: NDArray[np.intp]) -> Array:
    """Positions in the last axis of ``array``, as what indexes it without waiting for a copy."""
    if isinstance(array, np.ndarray):
        return places
    return array.new_empty(0).long().new_tensor(places)


def like_that(array: NDArray[Any], like: Array) -> Array:
    """The way back: ``array`` where ``like`` lies."""
    return array if isinstance(like, np.ndarray) else like.new_tensor(array)
