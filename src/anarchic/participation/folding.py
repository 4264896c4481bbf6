"""From visits to the rows of a timetable."""

from __future__ import annotations

import numpy as np

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Floats, Ints, Rows
from anarchic.participation.timetable import Timetable, running_numbers
from anarchic.participation.visits import Visits


def from_visits(visits: Visits, m: int, workers: int) -> Timetable:
    """The timetable of a server that steps at every ``m``-th push.

    Pushes at the same time are folded in the order of worker numbers. A pull at the same time as a
    push sees that push folded, except that no update can start from a version that it helps to
    make. Visits that never push are left out.
    """
    visits.check(workers)
    return Folding(m, workers).fold(visits, np.inf)


class Folding:
    """Makes the rows of `from_visits` piece by piece, as time goes on.

    It keeps one number per worker and the visits that have pulled and not yet been folded.
    """

    def __init__(self, m: int, workers: int) -> None:
        if m < 1:
            raise ConfigError(f"The server steps at every m-th push: m must be >= 1, got m={m}.")
        self._m = m
        self._version = 0
        self._seen = np.zeros(workers, np.int32)  # rows of each worker
        self._begun = Visits.join([])
        self._base: Ints = np.zeros(0, np.int32)  # versions that these start from

    def fold(self, visits: Visits, horizon_s: float) -> Timetable:
        """The rounds that end before the horizon; at an infinite one also the unfinished round.

        ``visits`` are those that pull before the horizon and were in no earlier call. A later pull
        also pushes later, so the order of all pushes before the horizon is known, and with it the
        base version of every visit that has pulled.
        """
        lost = visits.lost
        new = visits[~lost] if lost.any() else visits
        begun = Visits.join([self._begun, new])
        rows = np.flatnonzero(begun.push_s < horizon_s)
        rows = rows[_fold_order(begun.push_s[rows], begun.worker[rows])]
        if horizon_s < np.inf:
            rows = rows[: len(rows) // self._m * self._m]
        version_s = begun.push_s[rows[self._m - 1 :: self._m]]
        pulled = self._version + np.searchsorted(version_s, new.pull_s, side="right")
        base = np.concatenate((self._base, pulled.astype(np.int32)))
        table = self._table(begun, rows, base[rows])
        waits = np.ones(len(begun), np.bool_)
        waits[rows] = False
        self._begun, self._base = begun[waits], base[waits]
        self._version += table.rounds
        return table

    def _table(self, visits: Visits, rows: Rows, base: Ints) -> Timetable:
        worker = visits.worker[rows].astype(np.int32, copy=False)
        visit = running_numbers(worker)
        visit += self._seen[worker]
        self._seen += np.bincount(worker, minlength=len(self._seen)).astype(np.int32)
        newest = self._version + np.arange(len(rows), dtype=np.int32) // self._m
        return Timetable(
            workers=len(self._seen),
            m=self._m,
            worker=worker,
            visit=visit,
            base_version=np.minimum(base, newest),
            local_steps=visits.local_steps[rows].astype(np.int32, copy=False),
            pull_s=visits.pull_s[rows],
            push_s=visits.push_s[rows],
            before=self._version,
        )


def _fold_order(push_s: Floats, worker: Ints) -> Rows:
    order = np.argsort(push_s, kind="stable")
    ordered = push_s[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return order
    # Ties are rare: only they are sorted by the second key.
    tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((worker[rows], push_s[rows]))]
    return order
