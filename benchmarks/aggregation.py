"""W7, aggregation alone: GB of updates folded per second, beside a plain copy of the same bytes.

    python -m benchmarks.aggregation                # models of 1 MB to 1 GB, 1 and 2 threads
    python -m benchmarks.aggregation --sizes 1 16

An update of a 16 MB model counts as 16 MB, and so does a copy of it; a fold reads and writes
more than that. What is timed is ``receive``, with all its checks; the step that every m-th update
makes is timed on its own. Updates take turns out of a pool larger than the caches, since a server
gets every one of them from the network. Copies and folds alternate, one update each, so that none
finds in a cache what it left there itself. On a machine that is not free, "of copy, CPU" is worth
more than "of copy": it is the ratio of the processor times, in which waiting for a processor does
not count.

Exits with 1 if, at any size and with any threads, AFA-CD folds at less than half the rate of the
copy or AFA-CS at less than a quarter.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from anarchic import AfaCd, AfaCs, Update
from anarchic.kernels import loops
from anarchic.kernels.chunks import SHARED, use_threads
from anarchic.kernels.compiled import CAN_COMPILE
from anarchic.kernels.switches import expected_folds
from benchmarks.record import RESULTS, Record

SIZES_MB = (1, 16, 128, 1024)
POOL_MB = 256  # of updates that take turns
SECONDS = 15.0  # to be spent on a model, about
FEWEST, MOST = 9, 300  # turns
REPEATS = 3  # stretches of turns, with a median each
NEVER = 1 << 30  # updates per step, where the step is not what is timed
WORKERS = 2  # of AFA-CS: its price does not depend on them
BOUNDS = {"AFA-CD": 0.5, "AFA-CS": 0.25}


@dataclass
class Work:
    """Something that is done with one update after another, and how long it took."""

    do: Callable[[Update], object]
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def turn(self, update: Update) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.do(update)
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(time.process_time() - cpu)

    def rates(self, size: int) -> list[float]:
        """GB/s in each stretch of turns, an update having ``size`` bytes."""
        stretches = np.array_split(self.wall_s, REPEATS)
        return [size / 1e9 / median(stretch.tolist()) for stretch in stretches]


class Fold:
    """One rule at work on one state."""

    def __init__(self, rule: Any, model: np.ndarray) -> None:
        self._rule, self._state = rule, rule.init(model)

    def receive(self, update: Update) -> None:
        self._state = self._rule.receive(self._state, update)

    def steps_ms(self, update: Update) -> list[float]:
        """How long a few steps take; the first may have to ask the system for memory."""
        times = []
        for _ in range(5):
            self.receive(update)
            start = time.perf_counter()
            self._state = self._rule.flush(self._state)
            times.append(1e3 * (time.perf_counter() - start))
        return times


class Copies:
    """np.copyto of a model, shared between as many threads as a fold has."""

    def __init__(self, model: np.ndarray, threads: int) -> None:
        self._target = model.copy()
        self._cuts = [len(model) * part // threads for part in range(threads + 1)]
        self._pool = ThreadPoolExecutor(threads)

    def copy(self, update: Update) -> None:
        shares = [slice(*cut) for cut in pairwise(self._cuts)]
        others = [self._pool.submit(self._share, update.direction, part) for part in shares[1:]]
        self._share(update.direction, shares[0])
        for other in others:
            other.result()

    def _share(self, source: np.ndarray, part: slice) -> None:
        np.copyto(self._target[part], source[part])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES_MB, help="MB per model")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    record = Record("w7", "W7: aggregation alone, beside a copy of the same bytes")
    record.versions["numba"] = version("numba") if CAN_COMPILE else "none"
    for size in settings.sizes:
        if why_not := too_large(size):
            record.absent[f"{size} MB"] = why_not
            continue
        for threads in settings.threads:
            with expected_folds(loops.MANY):  # as in a long run
                measure(record, size, threads)
    for name, least in BOUNDS.items():
        ratios = [r.value for r in record.ratios if r.name == f"{name} / copy" and r.value]
        record.bound(f"{name} / copy, the least", min(ratios, default=None), least=least)
    return record.finish(settings.out)


def too_large(size_mb: int) -> str:
    """Why the arrays of a model of this size do not fit in memory, if they do not."""
    needed_mb = max(POOL_MB, WORKERS * size_mb) + (10 + WORKERS) * size_mb
    free_mb = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return f"needs {needed_mb} MB, {free_mb} MB are free" if needed_mb > free_mb else ""


def measure(record: Record, size_mb: int, threads: int) -> None:
    """Fold updates of one model, and note how fast that was."""
    use_threads(threads)
    pool = updates(size_mb)
    model = np.zeros_like(pool[0].direction)
    rules = {"AFA-CD": AfaCd(m=NEVER), "AFA-CS": AfaCs(m=NEVER)}
    folds = {name: Fold(rule, model) for name, rule in rules.items()}
    # A fold shares large models alone: a copy beside it has no more threads than it has.
    works = {"copy": Work(Copies(model, threads if len(model) > SHARED else 1).copy)}
    works |= {name: Work(fold.receive) for name, fold in folds.items()}
    alternate(list(works.values()), pool)
    group = f"{size_mb} MB, {threads} thread{'s' if threads > 1 else ''}"
    note(record, group, works, model.nbytes)
    for name in BOUNDS:
        steps = folds[name].steps_ms(pool[0])
        record.measure(f"a step of {name}", steps, unit="ms", better="lower", group=group)


def note(record: Record, group: str, works: dict[str, Work], size: int) -> None:
    copy = works["copy"]
    for name, work in works.items():
        ratio = median(copy.wall_s) / median(work.wall_s)
        facts = {"of copy": ratio, "of copy, CPU": median(copy.cpu_s) / median(work.cpu_s)}
        rate = record.measure(name, work.rates(size), unit="GB/s", group=group, facts=facts)
        if name in BOUNDS:
            record.ratio(f"{name} / copy", ratio, group=group)
        print(f"{group} {name}: {rate:.2f} GB/s, {ratio:.2f} of copy", flush=True)


def alternate(works: Sequence[Work], pool: Sequence[Update]) -> None:
    """Each in its turn, on the updates after those of the turn before."""
    updates = cycle(pool)
    for work in works:  # every worker has a row, every page of memory is there
        for _ in range(WORKERS + 1):
            work.do(next(updates))
    until = time.perf_counter() + SECONDS
    for turn in range(MOST):
        if turn >= FEWEST and time.perf_counter() > until:
            return
        for work in works:
            work.turn(next(updates))


def updates(size_mb: int) -> list[Update]:
    dim = size_mb << 18
    count = max(WORKERS, POOL_MB // size_mb)
    some = np.random.default_rng(0).standard_normal(dim, dtype=np.float32)
    return [
        Update(str(number % WORKERS), 0, 1, 0.1, np.roll(some, number)) for number in range(count)
    ]


if __name__ == "__main__":
    sys.exit(main())
