"""Inputs that mostly have one and the same value, for softmax regression.

Four fifths of an MNIST image are background b, zero before the pixels are normalised and another
number afterwards. With x = b + s only s has to be kept and multiplied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anarchic.kernels.chunks import share, threads_in_use
from anarchic.kernels.compiled import CAN_COMPILE, compiled

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]

WIDTH = 16  # classes at most: they are computed side by side, padded to so many
TOGETHER = 4  # entries of a sample come in multiples of it: as many sums are under way at once

_ENOUGH = 10_000_000  # numbers; loading the compiler takes as long as thousands of local steps
_MOST = 0.3  # share of numbers that are not background; dense products are faster with more
_WORTH_A_THREAD = 8  # local steps; waking a thread takes as long as a few of them
_LOOKED_AT = 100_000  # numbers, to find the background


class Sparse(NamedTuple):  # which compiled loops take as it is
    """Samples as what they have beside the background, with their labels."""

    inputs: int
    background: np.floating[Any]  # b
    first: Integers  # (samples + 1,): where the entries of each begin
    column: NDArray[np.uint16]  # (entries,)
    value: Floats  # (entries,): s; zero where an entry only fills up
    label: Integers  # (samples,)

    def suits(self, classes: int) -> bool:
        return int(self.label.max()) < classes <= WIDTH

    def visits(
        self, start: Floats, rates: Floats, local_steps: Integers, sample: Integers
    ) -> Floats:
        """The mean gradient of every visit of plain SGD, (lanes, dim), from where it starts.

        ``rates`` and ``local_steps`` have a number for every lane, ``sample`` is
        (lanes, steps, batch). What a lane gives does not depend on the others, nor on the threads
        that share them.
        """
        from anarchic.kernels.logistic_compiled import visits

        mean = np.empty_like(start)
        steps, sample = local_steps.astype(np.int64), np.ascontiguousarray(sample)
        work = (self, start, rates.reshape(-1), steps, sample, mean)
        worth = int(steps.sum()) // _WORTH_A_THREAD
        threads = max(1, min(threads_in_use(), len(start), worth))
        share(threads, lambda first: visits(*work, first, threads))
        return mean


def sparse(x: Floats, y: Integers) -> Sparse | None:
    """``x`` (samples, inputs) as ``Sparse``; None unless that pays."""
    some = x.reshape(-1)[:: max(1, x.size // _LOOKED_AT)]
    background = np.median(some).astype(x.dtype)  # of more than half of all
    pays = CAN_COMPILE and x.size >= _ENOUGH and (some != background).mean() <= _MOST
    if not pays or x.shape[1] > np.iinfo(np.uint16).max or y.min() < 0:
        return None
    found = made_sparse(x, y, background)
    # Nobody's visits: translated now, so that the first round takes no longer than others.
    nobody = np.zeros(0, np.int64)
    start = np.zeros((0, x.shape[1] + 1), x.dtype)
    found.visits(start, start[:, 0], nobody, nobody.reshape(0, 1, 1))
    return found


def made_sparse(x: Floats, y: Integers, background: np.floating[Any]) -> Sparse:
    counts = np.zeros(len(x) + 1, np.int64)
    _count(x, background, counts[1:])
    first = np.cumsum(-(-counts // TOGETHER) * TOGETHER)
    column, value = np.zeros(first[-1], np.uint16), np.zeros(first[-1], x.dtype)
    _fill(x, background, first, column, value)
    return Sparse(x.shape[1], background, first, column, value, y)


@compiled
def _count(x: Any, background: Any, counts: Any) -> None:
    for sample in range(len(x)):
        for number in x[sample]:
            if number != background:
                counts[sample] += 1


@compiled
def _fill(x: Any, background: Any, first: Any, column: Any, value: Any) -> None:
    for sample in range(len(x)):
        entry = first[sample]
        for j, number in enumerate(x[sample]):
            if number != background:
                column[entry] = j
                value[entry] = number - background
                entry += 1
