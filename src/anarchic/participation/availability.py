"""When workers are available, from a recorded trace."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anarchic.core.reading import check_file, reason, shown
from anarchic.core.types import Floats, Ints
from anarchic.errors import ConfigError, DataError

MAX_BYTES = 1 << 30  # of a trace
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
        return float((self.until_s - self.from_s).sum() / (self.until_s.max() * workers))

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

    def _clip(self, window: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
        """The worker's first window where none has begun; some window for workers without any."""
        return np.minimum(np.maximum(window, first), len(self.worker) - 1)


def read_availability(path: Path | str) -> Availability:
    """Read a CSV file with the columns worker, from_s, until_s; its first line names them."""
    path = Path(path)
    try:
        check_file(path, most=MAX_BYTES)
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return _parse(path.name, csv.reader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"Cannot read the availability trace {path}: {reason(error)}. Give a CSV file with the "
            f"columns {', '.join(_COLUMNS)}."
        ) from error


class _Window(NamedTuple):
    worker: int
    from_s: float
    until_s: float
    line: int


def _parse(name: str, rows: Iterable[list[str]]) -> Availability:
    lines = ((number, row) for number, row in enumerate(rows, start=1) if row)
    number, header = next(lines, (1, []))
    names = [column.strip() for column in header]
    if missing := [column for column in _COLUMNS if column not in names]:
        raise DataError(
            f"{name}, line {number}: column {missing[0]} is missing; the header must name "
            f"{', '.join(_COLUMNS)}, found {shown(names)}."
        )
    if twice := [column for column in _COLUMNS if names.count(column) > 1]:
        raise DataError(f"{name}, line {number}: column {twice[0]} occurs twice; leave one out.")
    places = {column: names.index(column) for column in _COLUMNS}
    width = len(names)
    windows = sorted(_parse_row(f"{name}, line {n}", n, row, places, width) for n, row in lines)
    if not windows:
        raise DataError(f"{name} has no windows below its header: add at least one.")
    for one, two in pairwise(windows):
        if one.worker == two.worker and two.from_s < one.until_s:
            raise DataError(
                f"{name}, line {two.line}, column from_s: worker {two.worker} becomes available at "
                f"{two.from_s} s, inside its window of line {one.line}; join the two."
            )
    worker, from_s, until_s, _ = (np.array(column) for column in zip(*windows, strict=True))
    return Availability.of(worker, from_s, until_s)


def _parse_row(
    where: str, line: int, row: list[str], places: Mapping[str, int], width: int
) -> _Window:
    if len(row) > width:
        raise DataError(
            f"{where}: {len(row)} values for {width} columns; leave out those beyond the header."
        )
    if short := [column for column, place in places.items() if place >= len(row)]:
        raise DataError(f"{where}, column {short[0]}: the line ends before it; complete the line.")
    worker, from_s, until_s = (row[place].strip() for place in places.values())
    short_enough = worker.isascii() and worker.isdigit() and len(worker) <= 10
    if not short_enough or int(worker) >= 2**31:
        raise DataError(
            f"{where}, column worker: {shown(worker)} is not a worker number; count workers from 0."
        )
    begin = _parse_time(f"{where}, column from_s", from_s)
    end = _parse_time(f"{where}, column until_s", until_s)
    if not begin < end:
        raise DataError(
            f"{where}, column until_s: the window ends at {end} s but begins at {begin} s; it must "
            "end later than it begins."
        )
    return _Window(int(worker), begin, end, line)


def _parse_time(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise DataError(f"{where}: {shown(text)} is not a time in seconds, finite and >= 0.")
    return value


def _before(worker: Ints, length_s: Floats) -> Floats:
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
