"""How long a timetable takes, and how much memory: a million workers, ten million updates.

    python -m benchmarks.timetable            # the required size: under 30 s and 4 GiB
    python -m benchmarks.timetable --workers 100000 --updates 1000000

Every case runs twice, each time in a process of its own so that its peak memory is its own, with
the same seed: the digests must agree.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from anarchic.participation import (
    Diurnal,
    Dropout,
    Exponential,
    Habits,
    Sampler,
    SpeedClasses,
    Timetable,
    UniformSteps,
    Work,
    make_timetable,
    timetable_blocks,
)

SEED = 1
M = 100  # updates a round
MOST_SECONDS, MOST_GIB = 30.0, 4.0
WORK = Work(
    UniformSteps(5),
    step_s=2.0,
    speeds=SpeedClasses({"fast": (0.3, 0.5), "usual": (0.5, 1.0), "slow": (0.2, 4.0)}),
)
EXPONENTIAL = Habits(Exponential(600.0), WORK, Dropout(lost=0.1))
DIURNAL = Habits(Diurnal(600.0, awake_h=8.0, asleep=0.05), WORK, Dropout(lost=0.1))


def exponential(workers: int, rounds: int) -> Timetable:
    return make_timetable(EXPONENTIAL, workers=workers, m=M, rounds=rounds, rng=SEED)


def exponential_blocks(workers: int, rounds: int, size: int) -> Iterator[Timetable]:
    return timetable_blocks(EXPONENTIAL, workers=workers, m=M, rounds=rounds, rng=SEED, size=size)


def diurnal(workers: int, rounds: int) -> Timetable:
    return make_timetable(DIURNAL, workers=workers, m=M, rounds=rounds, rng=SEED)


def sampler(workers: int, rounds: int) -> Timetable:
    return Sampler(workers, M, UniformSteps(5), versions_back=5).timetable(SEED, rounds)


def biased_sampler(workers: int, rounds: int) -> Timetable:
    total = workers * (workers + 1) / 2
    probabilities = [(i + 1) / total for i in range(workers)]
    biased = Sampler(workers, M, UniformSteps(5), versions_back=5, probabilities=probabilities)
    return biased.timetable(SEED, rounds)


CASES = (exponential, diurnal, sampler, biased_sampler)


def measure(
    case: Callable[[int, int], Timetable], workers: int, rounds: int
) -> tuple[float, float, str]:
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=10_000_000)
    settings = parser.parse_args()
    rounds = settings.updates // M
    good = True
    print(f"{settings.workers:,} workers, {rounds * M:,} updates, m={M}, seed {SEED}")
    print(f"{'case':<16}{'seconds':>9}{'peak GiB':>10}  digest")
    for case in CASES:
        digests = set()
        for _ in range(2):
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                seconds, peak, digest = alone.apply(measure, (case, settings.workers, rounds))
            digests.add(digest)
            good = good and seconds < MOST_SECONDS and peak < MOST_GIB
            print(f"{case.__name__:<16}{seconds:>9.2f}{peak:>10.2f}  {digest[:16]}")
        good = good and len(digests) == 1
    print("within bounds, digests agree" if good else "OUT OF BOUNDS OR DIGESTS DIFFER")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
