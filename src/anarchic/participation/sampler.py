"""The paper's sampler: rounds of m workers, without a clock, and how distinct ones are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anarchic.core.options import says_options
from anarchic.core.types import Bools, Floats, Ints
from anarchic.errors import ConfigError
from anarchic.participation.timetable import (
    Timetable,
    check_rounds,
    growing_blocks,
    running_numbers,
)
from anarchic.participation.work import StepPolicy, draw_steps

_BLOCK_ROWS = 1 << 20  # rows drawn at a time; another value gives other tables for the same seed


@says_options
@final
@dataclass(frozen=True)
class Sampler:
    """Each round, m of M workers report, each from a recent version.

    Workers are drawn uniformly or with ``probabilities``, with or without replacement; without,
    by successive draws among those not yet in the round. The base version is uniform among the
    newest version and the ``max_staleness`` versions before it, as far as they exist: 0 is the
    synchronous case, 4 the paper's asynchronous one.

    Reference: Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022,
    arXiv:2108.09875, experiments. Departs from it in: nothing; what the paper leaves open (that
    early rounds draw among the versions that exist, and successive draws) is settled as said here.
    """

    workers: int
    m: int
    steps: StepPolicy
    max_staleness: int = 0
    replace: bool = False
    probabilities: Sequence[float] | Floats | None = None

    def __post_init__(self) -> None:
        if self.workers < 1 or self.m < 1 or self.max_staleness < 0:
            raise ConfigError(
                "Sampler needs workers >= 1, m >= 1 and max_staleness >= 0, got "
                f"{self.workers}, {self.m} and {self.max_staleness}."
            )
        if not self.replace and self.m > self.workers:
            raise ConfigError(
                f"Cannot draw m={self.m} of {self.workers} workers without replacement; lower m "
                "or set replace=True."
            )
        if self.probabilities is not None:
            self._check_probabilities(np.asarray(self.probabilities, np.float64))

    def timetable(self, rng: Generator | int, rounds: int) -> Timetable:
        """A timetable of ``rounds`` rounds; a longer one begins with it. ``rng`` may be a seed."""
        check_rounds(rounds)
        rng = np.random.default_rng(rng)
        worker, base, steps = (np.empty((rounds, self.m), np.int32) for _ in range(3))
        for first, end in growing_blocks(self.m, _BLOCK_ROWS):
            if first >= rounds:
                break
            part, shape = slice(first, min(end, rounds)), (end - first, self.m)
            who = self._draw_workers(rng, shape)
            drawn = (
                who,
                self._draw_bases(rng, np.arange(first, end, dtype=np.int32), shape),
                draw_steps(self.steps, rng, who),
            )
            for column, block in zip((worker, base, steps), drawn, strict=True):
                column[part] = block[: part.stop - first]
        workers, bases, taken = (column.reshape(-1) for column in (worker, base, steps))
        columns = workers, running_numbers(workers), bases, taken
        later = np.arange(max(0, rounds - self.max_staleness), rounds + 1, dtype=np.int32)
        return Timetable(self.workers, self.m, *columns, later=later)

    def _draw_workers(self, rng: Generator, shape: tuple[int, int]) -> Ints:
        given = self.probabilities
        probabilities = None if given is None else np.asarray(given, np.float64)
        if not self.replace:
            return distinct_workers(rng, self.workers, shape, probabilities)
        cumulative = None if probabilities is None else running_sums(probabilities)
        return any_workers(rng, self.workers, shape, cumulative)

    def _draw_bases(self, rng: Generator, version: Ints, shape: tuple[int, int]) -> Ints:
        newest = version[:, None]
        if self.max_staleness == 0:
            return np.broadcast_to(newest, shape)
        choices = np.minimum(newest, self.max_staleness) + 1
        return newest - rng.integers(0, choices, shape, dtype=np.int32)

    def _check_probabilities(self, given: Floats) -> None:
        if given.shape != (self.workers,):
            raise ConfigError(
                f"Sampler needs one probability for each of {self.workers} workers, got an array "
                f"of shape {given.shape}."
            )
        if not (given >= 0).all():  # NaN too
            raise ConfigError(
                f"Probabilities must be >= 0; worker {int(np.argmin(given >= 0))} has "
                f"{given[np.argmin(given >= 0)]}."
            )
        if abs(given.sum() - 1) > 1e-6:
            raise ConfigError(
                f"Probabilities must sum to 1, got {given.sum():.9g}; divide them by their sum."
            )
        possible = int(np.count_nonzero(given))
        if not self.replace and possible < self.m:
            raise ConfigError(
                f"Cannot draw m={self.m} different workers when only {possible} have a "
                "probability above 0; lower m or set replace=True."
            )


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
