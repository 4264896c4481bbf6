"""Delay and local steps of a timetable: tau, m' and K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable
from anarchic.theory.numbers import Arrivals, Memory


@dataclass(frozen=True)
class Steps:
    """The distribution of local steps per visit, K_{t,i}.

    ``counts`` maps K to the number of updates that took K steps, in order of K.
    """

    counts: Mapping[int, int]

    @property
    def quartiles(self) -> tuple[int, ...]:
        """The least K, the three quartiles (the second is the median), and the largest K."""
        values, upto = np.array(list(self.counts)), np.cumsum(list(self.counts.values()))
        return tuple(values[np.searchsorted(upto, upto[-1] * np.arange(5) / 4)].tolist())


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
    first = _complete_at(table)
    pulled = np.zeros(table.workers, np.int64)
    steps = np.zeros(table.workers)
    inverse = np.zeros(table.workers)
    arrived = np.zeros(table.workers, np.int64)
    seen: list[tuple[float, ...]] = []
    for t in range(table.rounds):
        rows = slice(t * table.m, (t + 1) * table.m)
        who, K = table.worker[rows], table.local_steps[rows]
        # Where a worker has several updates in a round, NumPy keeps the last, as the server does.
        pulled[who], steps[who], inverse[who] = table.base_version[rows], K, 1 / K
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


def steps_of(table: Timetable) -> Steps:
    """The distribution of K over the updates of a run's full rounds.

    >>> from anarchic.participation import Sampler, UniformSteps
    >>> table = Sampler(10, 5, UniformSteps(1, 2)).timetable(0, rounds=100)
    >>> list(steps_of(table).counts)
    [1, 2]
    """
    values, counts = np.unique(full_rounds(table).local_steps, return_counts=True)
    return Steps(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def full_rounds(table: Timetable) -> Timetable:
    """The timetable without the updates after its last full round."""
    if table.rounds < 1:
        raise ConfigError(
            f"A timetable of {len(table)} updates has no full round of {table.m}: let it run on."
        )
    return table if len(table) == table.rounds * table.m else table.cut(table.rounds)


def _complete_at(table: Timetable) -> int | None:
    """The round in which the last worker reports for the first time; None where one never does."""
    workers, rows = np.unique(table.worker, return_index=True)
    return None if len(workers) < table.workers else int(rows.max()) // table.m
