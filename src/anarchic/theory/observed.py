"""What a timetable shows: delay and local steps (tau, m' and K), and how evenly workers arrive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable
from anarchic.theory.numbers import Arrivals, Memory

SURPRISING = 3.0  # standard deviations
EXPECTED = 5  # mean updates per worker and window; the test needs this many

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class StepsTaken:
    """Local steps per visit, K_{t,i}: K -> the number of updates that took K, in order of K."""

    counts: Mapping[int, int]

    @property
    def quartiles(self) -> tuple[int, ...]:
        """The least K, the three quartiles (the second is the median), and the largest K."""
        values, upto = np.array(list(self.counts)), np.cumsum(list(self.counts.values()))
        return tuple(values[np.searchsorted(upto, upto[-1] * np.arange(5) / 4)].tolist())


@dataclass(frozen=True)
class Balance:
    """How evenly the workers arrive, in the whole run and in windows of it.

    Shares are of all updates; ``skew`` is sum_i |share_i - 1/M|. ``surprise`` is the distance of
    the counts from those of equally likely workers, by the chi-squared test, in standard deviations
    of the normal distribution (Wilson and Hilferty's approximation). ``shift`` is that of windows
    of the run from the shares of the run, by the same test. Rounds in which no worker arrives twice
    are more even than chance, so both err on the low side.
    """

    share_min: float
    share_max: float
    silent: int
    skew: float
    surprise: float
    shift: float

    @property
    def biased(self) -> bool:
        """Whether equally likely workers look like this at most once in about a thousand runs."""
        return self.surprise > SURPRISING

    @property
    def words(self) -> str:
        """What an operator is told of it."""
        if self.even:
            return "as if equally likely"
        return "biased" if self.biased else "even in the run, but not at all times"

    @property
    def shifting(self) -> bool:
        """Whether the shares change with time, as with workers that are active at certain hours."""
        return self.shift > SURPRISING

    @property
    def even(self) -> bool:
        """Whether every worker looks equally likely at any time, as Theorem 3 assumes."""
        return not (self.biased or self.shifting)


def arrivals_of(table: Timetable) -> Arrivals:
    """The numbers of Theorems 2 and 3, from the full rounds of a run.

    >>> from anarchic.participation import Sampler, UniformSteps
    >>> table = Sampler(10, 5, UniformSteps(1, 10), max_staleness=4).timetable(0, rounds=100)
    >>> found = arrivals_of(table)
    >>> found.staleness, found.steps_max, 5 < found.mean_steps < 6
    (4, 10, True)
    """
    table = full_rounds(table)
    steps = table.local_steps.astype(np.float64)
    squares = (steps**2).reshape(table.rounds, table.m).mean(axis=1)
    return Arrivals(
        workers=table.workers,
        m=table.m,
        rounds=table.rounds,
        staleness=int(table.staleness.max()),
        steps_max=int(steps.max()),
        inverse_steps=float((1 / steps).mean()),
        mean_steps=float(steps.mean()),
        square_steps=float(squares.mean()),
        worst_square_steps=float(squares.max()),
    )


def memory_of(table: Timetable) -> Memory:
    """The numbers of Theorem 4: the rows that AFA-CS holds when it takes each step.

    Step t uses the last update of every worker that has arrived by then; its age is t minus the
    version that the worker pulled. Rounds count from the one in which the last worker reports for
    the first time. If a worker never reports, all rounds count and the age is infinite.
    """
    table = full_rounds(table)
    workers, rows = np.unique(table.worker, return_index=True)
    # The round in which the last worker reports for the first time; None where one never does.
    first = None if len(workers) < table.workers else int(rows.max()) // table.m
    pulled = np.zeros(table.workers, np.int64)
    steps = np.zeros(table.workers)
    inverse = np.zeros(table.workers)
    arrived = np.zeros(table.workers, np.int64)
    seen: list[tuple[float, ...]] = []
    for t in range(table.rounds):
        here = slice(t * table.m, (t + 1) * table.m)
        who, K = table.worker[here], table.local_steps[here]
        # Where a worker has several updates in a round, NumPy keeps the last, as the server does.
        pulled[who], steps[who], inverse[who] = table.base_version[here], K, 1 / K
        arrived[who] = t
        if t >= (first or 0):
            fresh = int(np.count_nonzero((pulled == t) & (steps > 0)))
            age = t - int(pulled.min())
            reuse = float(np.mean((t - arrived) * inverse))
            seen.append((age, fresh, inverse.mean(), steps.sum(), float(steps @ steps), reuse))
    ages, fresh_rows, inverses, sums, squares, reuses = zip(*seen, strict=True)
    return Memory(
        workers=table.workers,
        rounds=len(seen),
        row_age=inf if first is None else max(ages),
        fresh=int(min(fresh_rows)),
        steps_max=int(table.local_steps.max()),
        inverse_steps=float(np.mean(inverses)),
        sum_steps=float(np.mean(sums)),
        sum_square_steps=float(np.mean(squares)),
        worst_sum_square_steps=float(max(squares)),
        reuse=float(np.mean(reuses)),
        first=first or 0,
    )


def steps_of(table: Timetable) -> StepsTaken:
    """The distribution of K over the updates of a run's full rounds.

    >>> from anarchic.participation import Sampler, UniformSteps
    >>> table = Sampler(10, 5, UniformSteps(1, 2)).timetable(0, rounds=100)
    >>> list(steps_of(table).counts)
    [1, 2]
    """
    values, counts = np.unique(full_rounds(table).local_steps, return_counts=True)
    return StepsTaken(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def balance_of(table: Timetable) -> Balance:
    """How evenly the updates of a run are spread over the workers."""
    windows = _windows(full_rounds(table))
    counts = windows.sum(axis=0)
    shares = counts / counts.sum()
    return Balance(
        float(shares.min()),
        float(shares.max()),
        int(np.sum(counts == 0)),
        float(np.abs(shares - 1 / table.workers).sum()),
        _surprise(counts[None], np.full(table.workers, 1 / table.workers), table.workers - 1),
        _surprise(windows, shares, (len(windows) - 1) * (int(np.count_nonzero(counts)) - 1)),
    )


def full_rounds(table: Timetable) -> Timetable:
    """The timetable without the updates after its last full round."""
    if table.stepped is not None:
        raise ConfigError(
            "The theorems take m updates per round; a timer makes rounds of fewer: leave it out."
        )
    if table.rounds < 1:
        raise ConfigError(
            f"A timetable of {len(table)} updates has no full round of {table.m}: let it run on."
        )
    return table if len(table) == table.rounds * table.m else table.cut(table.rounds)


def _windows(table: Timetable) -> Counts:
    """Updates of each worker in stretches of whole rounds, the last the longest: (windows, M)."""
    length = -(-EXPECTED * table.workers // table.m)
    many = max(table.rounds // length, 1)
    window = np.minimum(np.arange(len(table)) // (length * table.m), many - 1)
    cells = np.bincount(window * table.workers + table.worker, minlength=many * table.workers)
    return cells.reshape(many, table.workers)


def _surprise(counts: Counts, shares: NDArray[np.float64], degrees: int) -> float:
    """How far ``counts`` (windows, M) are from ``shares`` of each window's sum."""
    if degrees == 0:
        return 0.0
    seen = shares > 0
    expected = counts.sum(axis=1, keepdims=True) * shares[seen]
    statistic = float(((counts[:, seen] - expected) ** 2 / expected).sum())
    spread = 2 / (9 * degrees)
    return float(((statistic / degrees) ** (1 / 3) - (1 - spread)) / sqrt(spread))
