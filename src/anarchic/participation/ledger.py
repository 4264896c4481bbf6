"""What a server took and counted, version by version."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from anarchic.core.types import Ints
from anarchic.participation.timetable import Stepped, Timetable
from anarchic.participation.wasted import NAMES, STEPS, Wasted


class Ledger:
    """Updates in the order in which they are folded, and the versions that they make.

    Keeps one number per worker, and the rows since ``table`` was called last.
    """

    def __init__(self, workers: int, m: int, *, timed: bool) -> None:
        self.version = self.count = 0  # steps so far, updates since the last one
        self._workers, self._m, self._timed = workers, m, timed
        self._made = 0  # versions in tables that were handed out
        self._visits = array("i", bytes(4 * workers))  # rows of each worker
        self._ints = tuple(array("i") for _ in range(4))  # worker, visit, base version, local steps
        self._times = array("d"), array("d")  # pull_s, push_s
        self._sizes, self._stepped_s = array("i"), array("d")
        self._counts = [0] * len(NAMES)  # since the last step
        self._wasted: list[list[int]] = []

    def accept(self, worker: int, base: int, steps: int, times: tuple[float, float]) -> None:
        """Fold an update that was pulled and pushed at these ``times``."""
        row = worker, self._visits[worker], base, steps
        self._visits[worker] += 1
        for ints, number in zip(self._ints, row, strict=True):
            ints.append(number)
        for seconds, time_s in zip(self._times, times, strict=True):
            seconds.append(time_s)
        self.count += 1

    def note(self, what: int, steps: int = 0) -> None:
        """Count a visit in vain, and its local steps."""
        self._counts[what] += 1
        self._counts[STEPS] += steps

    def step(self, now_s: float) -> None:
        """Make a version of what was accepted."""
        self._sizes.append(self.count)
        self._stepped_s.append(now_s)
        self._wasted.append(self._counts)
        self._counts = [0] * len(NAMES)
        self.version, self.count = self.version + 1, 0

    def table(self) -> Timetable:
        """The whole rounds since the last call."""
        rows = len(self._ints[0]) - self.count
        worker, visit, base, steps = (np.array(column[:rows], np.int32) for column in self._ints)
        pull_s, push_s = (np.array(column[:rows], np.float64) for column in self._times)
        for ints in self._ints:
            del ints[:rows]
        for times in self._times:
            del times[:rows]
        stepped = None
        if self._timed:
            sizes, at_s = np.array(self._sizes, np.int32), np.array(self._stepped_s, np.float64)
            stepped = Stepped(sizes, at_s)
        wasted = Wasted.of(self._wasted)
        self._sizes, self._stepped_s, self._wasted = array("i"), array("d"), []
        before, self._made = self._made, self.version
        return Timetable(
            self._workers,
            self._m,
            worker,
            visit,
            base,
            steps,
            pull_s,
            push_s,
            before,
            stepped=stepped,
            wasted=wasted,
        )

    def last(self, table: Timetable, begun: Iterable[int]) -> Timetable:
        """The table that was made last, with the versions from which later updates may start.

        ``begun`` are those from which workers work now.
        """
        bases = {*begun, *self._ints[2][len(self._ints[2]) - self.count :], self.version}
        later: Ints = np.array(sorted(bases), np.int32)
        return replace(table, later=later)
