"""How long a timetable takes, and how much memory: a million workers, ten million updates.

    python -m benchmarks.timetable            # the required size: under 30 s and 4 GiB
    python -m benchmarks.timetable --workers 100000 --updates 1000000 --out elsewhere

Every case runs twice, each time in a process of its own so that its peak memory is its own, with
the same seed: the digests must agree. Exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from anarchic.participation import (
    ContinuousTime,
    Diurnal,
    Dropout,
    Exponential,
    Sampler,
    SpeedClasses,
    Timetable,
    UniformSteps,
    Work,
    make_timetable,
    timetable_blocks,
)
from benchmarks.record import RESULTS, Record

SEED = 1
M = 100  # updates per round
MOST_SECONDS, MOST_GIB = 30.0, 4.0
WORK = Work(
    UniformSteps(1, 10),
    step_s=2.0,
    speeds=SpeedClasses({"fast": (0.3, 0.5), "usual": (0.5, 1.0), "slow": (0.2, 4.0)}),
)
EXPONENTIAL = ContinuousTime(Exponential(600.0), WORK, Dropout(lost_share=0.1))
DIURNAL = ContinuousTime(Diurnal(600.0, awake_h=8.0, asleep=0.05), WORK, Dropout(lost_share=0.1))


def exponential(workers: int, rounds: int) -> Timetable:
    return make_timetable(EXPONENTIAL, workers=workers, m=M, rounds=rounds, rng=SEED)


def exponential_blocks(workers: int, rounds: int, size: int) -> Iterator[Timetable]:
    return timetable_blocks(EXPONENTIAL, workers=workers, m=M, rounds=rounds, rng=SEED, size=size)


def diurnal(workers: int, rounds: int) -> Timetable:
    return make_timetable(DIURNAL, workers=workers, m=M, rounds=rounds, rng=SEED)


def sampler(workers: int, rounds: int) -> Timetable:
    return Sampler(workers, M, UniformSteps(1, 10), max_staleness=4).timetable(SEED, rounds)


def biased_sampler(workers: int, rounds: int) -> Timetable:
    total = workers * (workers + 1) / 2
    probabilities = [(i + 1) / total for i in range(workers)]
    biased = Sampler(workers, M, UniformSteps(1, 10), max_staleness=4, probabilities=probabilities)
    return biased.timetable(SEED, rounds)


CASES = (exponential, diurnal, sampler, biased_sampler)


Case = Callable[[int, int], Timetable]
Made = tuple[float, float, str]


def measure(case: Case, workers: int, rounds: int) -> Made:
    """Seconds, peak GiB and digest of one table."""
    start = time.perf_counter()
    table = case(workers, rounds)
    seconds = time.perf_counter() - start
    peak_gib = peak_mib() / 1024
    assert table.rounds == rounds
    return seconds, peak_gib, table.digest()


def peak_mib() -> float:
    """The most that this process had in memory."""
    # Linux counts a parent's peak as its children's in ru_maxrss, but not in VmHWM.
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**10
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    rounds = settings.updates // M
    what = f"Timetables of {settings.workers:,} workers, {rounds * M:,} updates, m = {M}"
    record = Record("timetable", what)
    for case in CASES:
        keep(record, case.__name__, [alone(case, settings.workers, rounds) for _ in range(2)])
    return record.finish(settings.out)


def alone(case: Case, workers: int, rounds: int) -> Made:
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(measure, (case, workers, rounds))


def keep(record: Record, name: str, found: Sequence[Made]) -> None:
    """What the runs of one case gave."""
    seconds, peaks, digests = zip(*found, strict=True)
    record.measure("made in", seconds, unit="s", better="lower", group=name)
    record.measure("peak", peaks, unit="GiB", better="lower", group=name)
    record.bound(f"{name}: seconds", max(seconds), most=MOST_SECONDS)
    record.bound(f"{name}: peak, GiB", max(peaks), most=MOST_GIB)
    record.bound(f"{name}: different digests", len(set(digests)), most=1)


if __name__ == "__main__":
    sys.exit(main())
