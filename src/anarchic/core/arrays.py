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

Array = Any  # a NumPy array or a torch tensor


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "new_zeros")


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


def cast(array: Array, like: Array) -> Array:
    """``array`` in the dtype of ``like``."""
    if isinstance(array, np.ndarray):
        return array.astype(like.dtype, copy=False)
    return array.to(like.dtype)


def times(array: Array, factor: float, like: Array) -> Array:
    """``factor * array`` in the dtype of ``like``, however narrow or wide the two are."""
    if isinstance(array, np.ndarray):
        return np.multiply(array, factor, dtype=like.dtype)
    return array.to(like.dtype) * factor


def minus(array: Array, change: Array) -> Array:
    """``array - change``, new, in the dtype of ``array``."""
    if isinstance(array, np.ndarray):
        return np.subtract(array, change, dtype=array.dtype)
    return array - change.to(array.dtype)


def sqrt(array: Array) -> Array:
    return np.sqrt(array) if isinstance(array, np.ndarray) else array.sqrt()


def sign(array: Array) -> Array:
    return np.sign(array) if isinstance(array, np.ndarray) else array.sign()


def norms(matrix: Array) -> NDArray[np.float64]:
    """The norm of every row. Not by BLAS, whose sums change with the number of threads."""
    if not isinstance(matrix, np.ndarray):
        # In float64 the squares of float32 cannot overflow; the list is one trip to the host.
        return np.array(matrix.double().square().sum(1).sqrt().tolist(), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        # float16 would overflow at a norm of 256
        dtype = np.result_type(matrix.dtype, np.float32)
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=dtype)
    found: NDArray[np.float64] = np.sqrt(squares.astype(np.float64))
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
        return is_floating(array) and np.can_cast(array.dtype, like.dtype)
    return not isinstance(array, np.ndarray) and array.dtype == like.dtype


def square_limit(like: Array) -> float:
    """The largest number whose square the dtype of ``like`` holds."""
    return math.sqrt(float(np.finfo(dtype_of(like)).max))


def on_host(array: Array) -> NDArray[Any]:
    """As a NumPy array; the same one if it is one."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def dtype_of(array: Array) -> np.dtype[Any]:
    """Its dtype, in NumPy's words."""
    return np.dtype(str(array.dtype).removeprefix("torch."))


def like_that(array: NDArray[Any], like: Array) -> Array:
    """The way back: ``array`` where ``like`` lies."""
    return array if isinstance(like, np.ndarray) else like.new_tensor(array)
