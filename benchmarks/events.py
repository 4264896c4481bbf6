"""W5, the event rate: a million workers, ten million updates, through timetable and aggregator.

    python -m benchmarks.events               # under 60 s and 4 GiB
    python -m benchmarks.events --workers 100000 --updates 1000000

A timetable says who reports when and how late; AFA-CD folds updates of d = 1,000 numbers in its
order, block by block. Directions are made a block at a time, as a backend would hand them over:
a window onto random numbers, no two of them alike within a block. Making them is part of the time.

Every size runs in a process of its own, so that its peak memory is its own. A timetable has a
row an update (32 bytes); what the aggregator needs on top of it is the most that was resident
while it folded, less what was resident before, and must not grow with the updates. Exits with 1 if
a bound is missed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from anarchic import AfaCd, Updates
from anarchic.participation import Timetable
from benchmarks.timetable import SEED, M, exponential

DIM = 1_000
BLOCK = 4_096  # updates
LOCAL_LR = 0.1
MOST_SECONDS, MOST_GIB = 60.0, 4.0
MOST_FOLD_MIB = 64.0  # a block, buffers, and the code that is loaded on the way


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

    updates: int
    versions: int
    mean_staleness: float
    seconds: dict[str, float]  # by part
    table_mib: float  # the columns of the timetable
    fold_mib: float  # what folding added to what was resident
    peak_gib: float

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


def run(workers: int, updates: int) -> Result:
    start = time.perf_counter()
    table = exponential(workers, updates // M)
    table_s = time.perf_counter() - start
    before_mib = most_mib = resident_mib()
    rule = AfaCd(m=M)
    state = rule.init(np.zeros(DIM, np.float32))
    made_s, folded_s = 0.0, 0.0
    late, folded = 0, 0
    blocks = make_blocks(table)
    while True:
        start = time.perf_counter()
        block = next(blocks, None)
        made_s += time.perf_counter() - start
        if block is None:
            break
        start = time.perf_counter()
        late += lateness(block, folded)
        state = rule.receive_many(state, block)
        folded += len(block)
        folded_s += time.perf_counter() - start
        most_mib = max(most_mib, resident_mib())
    assert state.version == table.rounds == updates // M
    assert late == int(table.staleness.sum(dtype=np.int64))
    assert np.isfinite(state.params).all()
    assert state.params.any()
    seconds = {"timetable": table_s, "directions": made_s, "aggregator": folded_s}
    return Result(
        updates=folded,
        versions=state.version,
        mean_staleness=late / folded,
        seconds=seconds,
        table_mib=sum(column.nbytes for column in table.to_arrays()[0].values()) / 2**20,
        fold_mib=most_mib - before_mib,
        peak_gib=peak_gib(),
    )


def make_blocks(table: Timetable) -> Iterator[Updates]:
    """The updates of a timetable, with directions that cost little to make."""
    noise = np.random.default_rng(SEED).standard_normal(DIM + BLOCK, dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(noise, DIM)
    room = np.empty((BLOCK, DIM), np.float32)
    rates, none = np.full(BLOCK, LOCAL_LR), np.zeros(BLOCK, np.int64)
    for first in range(0, len(table), BLOCK):
        rows = slice(first, min(first + BLOCK, len(table)))
        count = rows.stop - first
        np.copyto(room[:count], windows[:count])
        yield Updates(
            Names(table.worker[rows]),
            table.base_version[rows],
            table.local_steps[rows],
            rates[:count],
            room[:count],
            none[:count],
        )


def lateness(block: Updates, folded: int) -> int:
    """The staleness of a block in all, ``folded`` updates having been folded before it."""
    met = (folded + np.arange(len(block))) // M
    return int((met - block.base_versions).sum())


def resident_mib() -> float:
    """What is in memory now; where the system does not tell, the most that ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_gib() * 1024
    return pages * resource.getpagesize() / 2**20


def peak_gib() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=10_000_000)
    settings = parser.parse_args()
    print(f"{settings.workers:,} workers, d = {DIM:,}, m = {M}, blocks of {BLOCK:,}, seed {SEED}")
    met = True
    for updates in (settings.updates // 10, settings.updates):
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            found = alone.apply(run, (settings.workers, updates))
        show(found)
        met = met and found.fold_mib < MOST_FOLD_MIB
    met = met and found.total_s < MOST_SECONDS and found.peak_gib < MOST_GIB
    print("within bounds" if met else "OUT OF BOUNDS")
    return 0 if met else 1


def show(found: Result) -> None:
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.seconds.items())
    print(f"{found.updates:,} updates, {found.versions:,} versions")
    print(f"  mean staleness   {found.mean_staleness:10.1f}")
    print(f"  seconds          {found.total_s:10.1f}  (limit {MOST_SECONDS:.0f}; {parts})")
    print(f"  updates a second {found.updates / found.total_s:10,.0f}")
    print(f"  peak GiB         {found.peak_gib:10.2f}  (limit {MOST_GIB:.0f})")
    print(f"  timetable MiB    {found.table_mib:10.1f}")
    print(f"  aggregator MiB   {found.fold_mib:10.1f}  (limit {MOST_FOLD_MIB:.0f})")


if __name__ == "__main__":
    sys.exit(main())
