"""How AFA-CS exchanges the row of a worker, and keeps the sum of all rows up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anarchic.core.arrays import times
from anarchic.core.types import Vector
from anarchic.kernels import loops
from anarchic.kernels.chunks import CHUNK, STRETCH, scratch, sweep


class Exchange(NamedTuple):
    """A row that becomes ``local_lr * direction``."""

    row: Vector
    known: bool  # whether what is in the row counts already
    direction: Vector
    local_lr: float


def exchange(total: Vector, exchanges: Sequence[Exchange]) -> None:
    """Write rows, one after another, and bring ``total``, the sum of all rows, up to date.

    What is added is what a row has become, rounded as it is kept, so that exactly the same is
    subtracted when it is replaced.
    """
    if not isinstance(total, np.ndarray):
        for row, known, direction, local_lr in exchanges:
            if known:
                total -= row
            row[:] = times(direction, local_lr, row)
            total += row
        return

    looped = all(loops.suit(total, each.row, each.direction) for each in exchanges)
    one = _exchange_compiled if looped else _exchange

    def work(where: slice) -> None:
        for each in exchanges:
            one(total[where], where, each)

    sweep(len(total), work, chunk=STRETCH if looped and len(exchanges) == 1 else CHUNK)


def _exchange_compiled(total: Vector, where: slice, each: Exchange) -> None:
    row, direction = each.row[where], each.direction[where]
    loops.exchange(total, row, direction, each.local_lr, known=each.known)


def _exchange(total: Vector, where: slice, each: Exchange) -> None:
    """What ``exchange`` does with one row ``where``, ``total`` being the sum there."""
    row = each.row[where]
    if each.known:
        np.subtract(total, _wide(row, total), out=total)
    np.multiply(each.direction[where], each.local_lr, out=row, dtype=row.dtype)
    np.add(total, _wide(row, total), out=total)


def _wide(row: Vector, like: Vector) -> Vector:
    """``row`` in the dtype of ``like``: adding numbers of two kinds takes NumPy twice the time."""
    if row.dtype == like.dtype:
        return row
    wide = scratch(len(row), like.dtype)
    np.copyto(wide, row)
    return wide


def take_away(total: Vector, row: Vector) -> None:
    """``total -= row``."""
    if not isinstance(total, np.ndarray):
        total -= row
        return

    def work(where: slice) -> None:
        part = total[where]
        part -= _wide(row[where], part)

    sweep(len(total), work)
