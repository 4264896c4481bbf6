"""When workers are available, from a recorded trace."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import Floats, Ints
from anarchic.errors import ConfigError, DataError
from anarchic.participation.columns import Line, read_lines

_COLUMNS = ("worker", "from_s", "until_s")


@dataclass(frozen=True, eq=False)
class Availability:
    """Windows of time in which workers are available, in order of worker and time.

    Make one with `Availability.of` or `read_availability`. A worker without a window never visits.
    """

    worker: Ints  # (n,)
    from_s: Floats  # (n,)
    until_s: Floats  # (n,)
    before_s: Floats  # (n,) available time of the same worker before each window

    @staticmethod
    def of(worker: Ints, from_s: Floats, until_s: Floats) -> Availability:
        """Windows in any order. Those of one worker may not overlap; adjacent ones are joined."""
        if not len(worker):
            raise ConfigError("Availability needs at least one window, got none.")
        order = np.lexsort((from_s, worker))
        worker, from_s, until_s = worker[order].astype(np.int32), from_s[order], until_s[order]
        same = worker[1:] == worker[:-1]
        overlaps = np.concatenate(([False], same & (from_s[1:] < until_s[:-1])))
        if (wrong := overlaps | ~(from_s < until_s)).any():
            row = int(np.argmax(wrong))
            raise ConfigError(
                f"Worker {worker[row]} has a window from {from_s[row]} to {until_s[row]} s that is "
                "empty or overlaps the one before; each must end after it begins and before the "
                "next one begins."
            )
        apart = ~(same & (from_s[1:] == until_s[:-1]))
        begins, ends = np.concatenate(([True], apart)), np.concatenate((apart, [True]))
        worker, from_s, until_s = worker[begins], from_s[begins], until_s[ends]
        return Availability(worker, from_s, until_s, _before(worker, until_s - from_s))

    @property
    def share(self) -> float:
        """Available part of the time that the trace covers, over the workers it names."""
        workers = len(np.unique(self.worker))
        ends = self.until_s.max()
        if ends == np.inf:
            return 1.0  # in the long run
        return float((self.until_s - self.from_s).sum() / (ends * workers))

    def check(self, workers: int) -> None:
        """Refuse a trace that names workers outside the population."""
        if self.worker[0] < 0 or self.worker[-1] >= workers:
            raise ConfigError(
                f"The availability trace names workers {self.worker[0]}..{self.worker[-1]}, but "
                f"the population is 0..{workers - 1}. Renumber them or raise `workers`."
            )

    def after(self, worker: Ints, now_s: Floats, idle_s: Floats) -> tuple[Floats, Floats]:
        """When workers pull that idle for ``idle_s`` of available time, and when that window ends.

        Both are inf for a worker without enough available time left.
        """
        first = np.searchsorted(self.worker, worker, side="left")
        stop = np.searchsorted(self.worker, worker, side="right")
        window = self._clip(_last_at_most(self.from_s, first, stop, now_s), first)
        length = self.until_s[window] - self.from_s[window]
        passed = np.clip(now_s - self.from_s[window], 0, length)
        target = self.before_s[window] + passed + idle_s
        window = self._clip(_last_at_most(self.before_s, first, stop, target), first)
        pull = np.maximum(self.from_s[window] + (target - self.before_s[window]), now_s)
        # Rounding may put a pull at the end of a window that belongs to the start of the next.
        late = (pull >= self.until_s[window]) & (window + 1 < stop)
        window = window + late
        pull = np.where(late, self.from_s[window], pull)
        gone = (first == stop) | (pull >= self.until_s[window])
        return np.where(gone, np.inf, pull), np.where(gone, np.inf, self.until_s[window])

    def closes_s(self, worker: int, now_s: float) -> float:
        """End of the worker's last window that begins by now; -inf where there is none."""
        windows = self._one
        first, stop = windows.of(worker)
        window = bisect_right(windows.from_s, now_s, first, stop) - 1
        return -math.inf if window < first else float(windows.until_s[window])

    def between(self, worker: int, begin_s: float, end_s: float) -> float:
        """Available time of a worker between two times."""
        return self._passed(worker, end_s) - self._passed(worker, begin_s)

    def after_one(self, worker: int, now_s: float, idle_s: float) -> float:
        """When one worker pulls: ``after`` for one, many times as fast."""
        windows = self._one
        first, stop = windows.of(worker)
        if first == stop:
            return math.inf
        target = self._passed(worker, now_s) + idle_s
        window = max(bisect_right(windows.before_s, target, first, stop) - 1, first)
        pull_s = max(windows.from_s[window] + (target - windows.before_s[window]), now_s)
        if pull_s >= windows.until_s[window] and window + 1 < stop:
            window += 1
            pull_s = windows.from_s[window]
        return math.inf if pull_s >= windows.until_s[window] else float(pull_s)

    @cached_property
    def _one(self) -> _Views:
        return _Views(*map(_view, (self.worker, self.from_s, self.until_s, self.before_s)))

    def _passed(self, worker: int, now_s: float) -> float:
        """Available time of a worker until now."""
        windows = self._one
        first, stop = windows.of(worker)
        window = bisect_right(windows.from_s, now_s, first, stop) - 1
        if window < first:
            return 0.0
        open_s = min(now_s, windows.until_s[window]) - windows.from_s[window]
        return float(windows.before_s[window] + open_s)

    def _clip(self, window: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
        """The worker's first window where none has begun; some window for workers without any."""
        return np.minimum(np.maximum(window, first), len(self.worker) - 1)


def read_availability(path: Path | str, *, workers: int | None = None) -> Availability:
    """Read a CSV file with the columns worker, from_s, until_s; its first line names them.

    Or FedScale's trace as JSON, of which the first ``workers`` devices are taken and none is
    repeated; see ``read_fedscale``.
    """
    path = Path(path)
    if path.suffix.lower() in (".json", ".pkl", ".pickle"):
        from anarchic.participation.fedscale import read_fedscale

        return read_fedscale(path, workers=workers)
    windows = sorted(_window(line) for line in read_lines(path, "availability trace", _COLUMNS))
    if not windows:
        raise DataError(f"{path.name} has no windows below its header: add at least one.")
    for one, two in pairwise(windows):
        if one.worker == two.worker and two.from_s < one.until_s:
            raise DataError(
                f"{path.name}, line {two.line}, column from_s: worker {two.worker} becomes "
                f"available at {two.from_s} s, inside its window of line {one.line}; join the two."
            )
    worker, from_s, until_s, _ = (np.array(column) for column in zip(*windows, strict=True))
    return Availability.of(worker, from_s, until_s)


class _Views(NamedTuple):
    """The columns as memory views: they give Python's own numbers, one at a time."""

    worker: memoryview[Any]
    from_s: memoryview[Any]
    until_s: memoryview[Any]
    before_s: memoryview[Any]

    def of(self, worker: int) -> tuple[int, int]:
        """The first window of a worker, and the one after its last."""
        first = bisect_left(self.worker, worker)
        return first, bisect_right(self.worker, worker, first)


def _view(column: Any) -> memoryview[Any]:  # NumPy's arrays are buffers; its types do not say so
    return memoryview(column)


class _Window(NamedTuple):
    worker: int
    from_s: float
    until_s: float
    line: int


def _window(line: Line) -> _Window:
    worker, begin, end = line.worker(), line.seconds("from_s"), line.seconds("until_s")
    if not begin < end:
        raise DataError(
            f"{line.where}, column until_s: the window ends at {end} s but begins at {begin} s; it "
            "must end later than it begins."
        )
    return _Window(worker, begin, end, line.number)


def _before(worker: Ints, length_s: Floats) -> Floats:
    length_s = np.where(np.isinf(length_s), 0.0, length_s)  # only a worker's last has no end
    total = np.cumsum(length_s) - length_s
    return total - total[np.searchsorted(worker, worker, side="left")]


def _last_at_most(
    values: Floats, first: NDArray[np.int64], stop: NDArray[np.int64], x: Floats
) -> NDArray[np.int64]:
    """For each x, the last index in [first, stop) whose value is <= x, or first - 1.

    ``values`` rise only within the windows of one worker, so one search of the whole array is not
    enough: the windows of all workers are bisected at once.
    """
    low, high = first.copy(), stop.copy()
    while (unsettled := low < high).any():
        middle = (low + high) // 2
        right = unsettled & (values[np.minimum(middle, len(values) - 1)] <= x)
        low = np.where(right, middle + 1, low)
        high = np.where(unsettled & ~right, middle, high)
    return low - 1
