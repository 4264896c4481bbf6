"""Drawing distinct workers for many rounds at once."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anarchic.core.types import Bools, Floats, Ints

_PASSES = 8  # redraws of repeats before a race settles the rounds that are still short
_RACE_KEYS = 1 << 22  # keys of one block of races: 32 MiB


def distinct_workers(
    rng: Generator, workers: int, shape: tuple[int, int], probabilities: Floats | None = None
) -> Ints:
    """Rows of distinct workers by successive draws, each among those not yet in its row.

    ``shape`` is (rounds, m). A round costs O(m), unless m is close to ``workers`` or a few workers
    have almost all of the probability.
    """
    chosen = np.full(shape, -1, np.int32)
    short = np.arange(len(chosen))
    if workers > 4 * shape[1]:
        short = _draw_and_redraw(rng, workers, chosen, probabilities)
    block = max(1, _RACE_KEYS // workers)
    for start in range(0, len(short), block):
        rows = short[start : start + block]
        chosen[rows] = _race(rng, workers, chosen[rows], probabilities)
    return chosen


def any_workers(
    rng: Generator, workers: int, shape: int | tuple[int, ...], cumulative: Floats | None = None
) -> Ints:
    """Independent draws; ``cumulative`` are the running sums of probabilities."""
    if cumulative is None:
        return rng.integers(0, workers, shape, dtype=np.int32)
    return np.searchsorted(cumulative, rng.random(shape), side="right").astype(np.int32)


def running_sums(probabilities: Floats) -> Floats:
    """Running sums that end at exactly 1."""
    sums = np.cumsum(probabilities)
    sums /= sums[-1]
    return sums


def _draw_and_redraw(
    rng: Generator, workers: int, chosen: Ints, probabilities: Floats | None
) -> NDArray[np.int64]:
    """Fill ``chosen`` (-1 where empty) and return the rows that are still short.

    The first m different workers of a row of independent draws are a sample by successive draws.
    """
    cumulative = None if probabilities is None else running_sums(probabilities)
    short = np.arange(len(chosen))
    for _ in range(_PASSES):
        rows = chosen[short]
        empty = rows < 0
        rows[empty] = any_workers(rng, workers, int(np.count_nonzero(empty)), cumulative)
        full = _without_repeats(rows)
        chosen[short[full]] = rows[full]
        short = short[~full]
        if not len(short):
            break
        chosen[short] = _closed_up(rows[~full])
    return short


def _without_repeats(rows: Ints) -> Bools:
    ordered = np.sort(rows, axis=1)
    distinct: Bools = np.all(ordered[:, 1:] != ordered[:, :-1], axis=1)
    return distinct


def _closed_up(rows: Ints) -> Ints:
    """First occurrences moved to the left in their order; -1 in the places that become free."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    repeated = np.zeros(rows.shape, np.bool_)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    left = np.argsort(repeated, axis=1, kind="stable")
    return np.take_along_axis(np.where(repeated, np.int32(-1), rows), left, axis=1)


def _race(rng: Generator, workers: int, rows: Ints, probabilities: Floats | None) -> Ints:
    """Fill the free places at the right of each row with the winners of an exponential race.

    Of independent exponential times with rates p_i the order of arrival is a sample by
    successive draws.
    """
    m = rows.shape[1]
    arrival = rng.standard_exponential((len(rows), workers))
    if probabilities is not None:
        with np.errstate(divide="ignore"):  # probability 0: never arrives
            arrival /= probabilities
    # Those drawn before the race have arrived already, in the order in which they stand.
    row, place = np.nonzero(rows >= 0)
    arrival[row, rows[row, place]] = place - m
    first = np.argpartition(arrival, m - 1, axis=1)[:, :m]
    order = np.argsort(np.take_along_axis(arrival, first, axis=1), axis=1, kind="stable")
    return np.take_along_axis(first, order, axis=1).astype(np.int32)
