"""W5, the event rate: a million workers, ten million updates, through timetable and aggregator.

    python -m benchmarks.events               # under 60 s and 4 GiB; a minute or two in all
    python -m benchmarks.events --workers 10000 --updates 1000000 --repeats 1 --out elsewhere

A timetable says who reports when and how late; AFA-CD folds updates of d = 1,000 numbers in its
order. Both come in blocks: the timetable from workers under way, the directions as a backend would
hand them over, windows onto random numbers that are drawn anew for every block. Making them is part
of the time.

Every run is a process of its own, so that its peak memory is its own. Memory goes with workers and
buffers, not with updates: a quarter and a half of the updates are run too, and all of it with a
tenth of the workers. Exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from anarchic import AfaCd, Updates
from anarchic.participation import Timetable
from benchmarks.record import RESULTS, Record
from benchmarks.timetable import SEED, M, exponential_blocks, peak_mib

DIM = 1_000
BLOCK = 4_000  # updates
LOCAL_LR = 0.1
REPEATS = 3
MOST_SECONDS, MOST_GIB = 60.0, 4.0
MOST_GROWTH_MIB = 16.0  # from a quarter of the updates to all: held, they would take 229


class Names(Sequence[str]):
    """The names of numbered workers, made when somebody asks: most of them nobody does."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Names: ...
    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return Names(self._numbers[index])
        return str(self._numbers[index])


@dataclass(frozen=True)
class Result:
    """What one process measured."""

    workers: int
    updates: int
    mean_staleness: float
    seconds: dict[str, float]  # by part
    peak_mib: float

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


class Watch:
    """Adds up the time of the parts of a loop."""

    def __init__(self, *parts: str) -> None:
        self.seconds = dict.fromkeys(parts, 0.0)
        self._since = time.perf_counter()

    def passed(self, part: str) -> None:
        """What has passed since the last call went to this part."""
        now = time.perf_counter()
        self.seconds[part] += now - self._since
        self._since = now


def run(workers: int, updates: int) -> Result:
    watch = Watch("timetable", "directions", "aggregator")
    rule = AfaCd(m=M)
    state = rule.init(np.zeros(DIM, np.float32))
    make = Directions()
    late, folded = 0, 0
    for table in exponential_blocks(workers, updates // M, BLOCK):
        watch.passed("timetable")
        block = make.updates(table)
        watch.passed("directions")
        assert table.before == state.version
        state = rule.receive_many(state, block)
        late += int(table.staleness.sum(dtype=np.int64))
        folded += len(block)
        watch.passed("aggregator")
    assert state.version == updates // M
    assert np.isfinite(state.params).all()
    assert state.params.any()
    return Result(workers, folded, late / folded, watch.seconds, peak_mib())


class Directions:
    """Makes the updates of a block, with directions that cost little to make, no two alike."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(SEED)
        self._noise = np.empty(DIM + BLOCK, np.float32)
        self._windows = np.lib.stride_tricks.sliding_window_view(self._noise, DIM)
        self._room = np.empty((BLOCK, DIM), np.float32)

    def updates(self, table: Timetable) -> Updates:
        count = len(table)
        self._rng.standard_normal(out=self._noise, dtype=np.float32)
        np.copyto(self._room[:count], self._windows[:count])
        return Updates(
            Names(table.worker),
            table.base_version,
            table.local_steps,
            np.full(count, LOCAL_LR),
            self._room[:count],
            np.zeros(count, np.int64),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of all updates")
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    record = Record("w5", f"W5: {settings.updates:,} updates of d = {DIM:,}, m = {M}")
    shares = (4, 2, *[1] * settings.repeats)
    for workers in (settings.workers, settings.workers // 10):
        keep(record, [alone(workers, settings.updates // share) for share in shares])
    return record.finish(settings.out)


def alone(workers: int, updates: int) -> Result:
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(run, (workers, updates))


def keep(record: Record, found: Sequence[Result]) -> None:
    """What one number of workers gave, with different numbers of updates."""
    group = f"{found[0].workers:,} workers"
    peaks: dict[int, list[float]] = {}
    for result in found:
        peaks.setdefault(result.updates, []).append(result.peak_mib)
    fewest, most = min(peaks), max(peaks)
    whole = [result for result in found if result.updates == most]
    usual = sorted(whole, key=lambda result: result.total_s)[len(whole) // 2]
    facts = {f"{part}_s": seconds for part, seconds in usual.seconds.items()}
    facts["staleness"] = usual.mean_staleness
    rates = [result.updates / result.total_s for result in whole]
    record.measure("folded", rates, unit="updates/s", group=group, facts=facts)
    for updates, values in peaks.items():
        name = f"peak, {updates:,} updates"
        record.measure(name, values, unit="MiB", better="lower", group=group)
    slowest = max(result.total_s for result in whole)
    growth = max(peaks[most]) - min(peaks[fewest])
    record.bound(f"{group}: seconds", slowest, most=MOST_SECONDS)
    record.bound(f"{group}: peak, GiB", max(peaks[most]) / 1024, most=MOST_GIB)
    record.bound(
        f"{group}: MiB more for {most / fewest:.0f} times the updates",
        growth,
        most=MOST_GROWTH_MIB,
    )


if __name__ == "__main__":
    sys.exit(main())
