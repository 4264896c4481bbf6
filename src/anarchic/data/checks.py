"""What is wrong with samples, said in one sentence before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import DataError

Array = NDArray[Any]

IGNORED = -100  # a label in a sequence that does not count, as PyTorch and Hugging Face have it
# An array on disk takes long to read: at most this much of it is looked at, in a few places.
_LOOKED_AT = 1_000  # samples
_BYTES = 1 << 26  # about
_PIECES = 8


def check_samples(where: str, x: Array, y: Array, classes: int | None) -> None:
    """Refuse samples that no model can learn from; ``where`` names them, as "mine: the test"."""
    if len(x) != len(y) or len(y) == 0:
        raise DataError(
            f"{where.replace(': the', f': {len(x)}')} inputs but {len(y)} labels: give one target "
            "for every input, and at least one of each."
        )
    for what, array in (("inputs", x), ("targets", y)):
        if array.dtype.kind not in "fiub":
            raise DataError(
                f"{where} {what} are of type {array.dtype}: turn them into numbers first."
            )
        if array.dtype.kind == "f":
            _check_finite(f"{where} {what}", array)
    if classes is not None:
        _check_labels(where, y, classes)


def _check_finite(what: str, array: Array) -> None:
    some, numbers = _some(array)
    with np.errstate(invalid="ignore"):
        if np.isfinite(some.min(initial=0)) and np.isfinite(some.max(initial=0)):
            return
    wrong = ~np.isfinite(some.reshape(len(some), -1)).all(axis=1)
    raise DataError(
        f"{what} hold NaN or infinity in {wrong.sum():,} of {len(some):,} samples, first in number "
        f"{numbers[np.flatnonzero(wrong)[0]]}: fill these values in, or leave the samples out."
    )


def _check_labels(where: str, y: Array, classes: int) -> None:
    if y.dtype.kind == "f":
        raise DataError(
            f"{where} labels are of type {y.dtype}, but there are {classes} classes: give whole "
            "numbers from 0, or classes=None where the targets are no classes."
        )
    some, _ = _some(y)
    counted = some[some != IGNORED] if y.ndim > 1 else some
    least, most = int(counted.min(initial=classes)), int(counted.max(initial=-1))
    if len(counted) and not (least >= 0 and most < classes):
        raise DataError(
            f"{where} labels go from {least} to {most}, but there are {classes} classes: number "
            "them from 0."
        )


def _some(array: Array) -> tuple[Array, Sequence[int] | NDArray[np.intp]]:
    """All samples and their numbers; of an array on disk only those of a few pieces.

    The pieces are evenly spread, from the first sample to the last: a read from disk brings many
    pages, so single samples from all over would take as long as a thousand pieces.
    """
    if not isinstance(array, np.memmap):
        return array, range(len(array))
    count = max(10, min(_LOOKED_AT, _BYTES * len(array) // array.nbytes))
    if len(array) <= count:
        return array, range(len(array))
    length = -(-count // _PIECES)
    starts = np.linspace(0, len(array) - length, _PIECES).astype(np.intp)
    some = np.concatenate([array[start : start + length] for start in starts])
    return some, (starts[:, None] + np.arange(length)).reshape(-1)
