"""W7, aggregation alone: GB of updates folded a second, beside a plain copy of the same bytes.

    python -m benchmarks.aggregation                # models of 1 MB to 1 GB, 1 and 2 threads
    python -m benchmarks.aggregation --sizes 1 16

An update of a 16 MB model counts as 16 MB, and so does a copy of it; a fold reads and writes
more than that. What is timed is ``receive``, with all its checks; the step that every m-th update
makes is timed on its own. Updates take turns out of a pool larger than the caches, since a server
gets every one of them from the network. Copies and folds alternate, one update each, so that none
finds in a cache what it left there itself; the table has medians. On a machine that is not free,
"of copy, CPU" is worth more than "of copy": it is the ratio of the processor times, in which
waiting for a processor does not count.

Exits with 1 if AFA-CD folds at less than half the rate of the copy or AFA-CS at less than a
quarter. The other kinds of rows are shown for comparison.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from statistics import median
from typing import Any

import numpy as np

from anarchic import AfaCd, AfaCs, Update
from anarchic.core.chunks import use_threads

SIZES_MB = (1, 16, 128, 1024)
POOL_MB = 256  # of updates that take turns
SECONDS = 15.0  # to be spent on a model, about
FEWEST, MOST = 9, 300  # turns
NEVER = 1 << 30  # updates a step, where the step is not what is timed
WORKERS = 2  # of AFA-CS: its price does not depend on them
BOUNDS = {"AFA-CD": 0.5, "AFA-CS": 0.25}
OTHER_ROWS = ("mapped", "float16", "int8")


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


class Fold:
    """One rule at work on one state."""

    def __init__(self, rule: Any, model: np.ndarray) -> None:
        self._rule, self._state = rule, rule.init(model)

    def receive(self, update: Update) -> None:
        self._state = self._rule.receive(self._state, update)

    def step_s(self, update: Update) -> float:
        """The median of a few steps; the first may have to ask the system for memory."""
        times = []
        for _ in range(5):
            self.receive(update)
            start = time.perf_counter()
            self._state = self._rule.flush(self._state)
            times.append(time.perf_counter() - start)
        return median(times)


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
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES_MB, help="MB a model")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    settings = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    heads = f"{'GB/s':>8}{'of copy':>9}{'of copy, CPU':>14}{'bound':>7}"
    print(f"{'model':>8}{'threads':>8}  {'what':<16}{heads}")
    met = [
        measure(size, threads)
        for size in settings.sizes
        for threads in settings.threads
        if fits(size)
    ]
    print("within bounds" if all(met) else "OUT OF BOUNDS")
    return 0 if all(met) else 1


def fits(size_mb: int) -> bool:
    """Whether the arrays of a model of this size fit in memory."""
    needed_mb = max(POOL_MB, WORKERS * size_mb) + (10 + WORKERS) * size_mb
    free_mb = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    if needed_mb > free_mb:
        print(f"{size_mb:>5} MB  skipped: needs {needed_mb} MB of memory, {free_mb} MB are free")
    return needed_mb <= free_mb


def measure(size_mb: int, threads: int) -> bool:
    """Print the rows of one model; whether they keep the bounds."""
    use_threads(threads)
    pool = updates(size_mb)
    model = np.zeros_like(pool[0].direction)
    rules = {"AFA-CD": AfaCd(m=NEVER), "AFA-CS": AfaCs(m=NEVER)}
    if size_mb <= 128:
        rules |= {f"AFA-CS {rows}": AfaCs(m=NEVER, rows=rows) for rows in OTHER_ROWS}
    folds = {name: Fold(rule, model) for name, rule in rules.items()}
    works = {"copy": Work(Copies(model, threads).copy)}
    works |= {name: Work(fold.receive) for name, fold in folds.items()}
    alternate(list(works.values()), pool)
    copy, met = works["copy"], True
    for name, work in works.items():
        ratio = median(copy.wall_s) / median(work.wall_s)
        bound = BOUNDS.get(name)
        met = met and (bound is None or ratio >= bound)
        rate = model.nbytes / 1e9 / median(work.wall_s)
        print(
            f"{size_mb:>5} MB{threads:>8}  {name:<16}{rate:>8.2f}"
            f"{ratio:>9.2f}{median(copy.cpu_s) / median(work.cpu_s):>14.2f}"
            f"{'' if bound is None else format(bound, '.2f'):>7}"
        )
    steps = ", ".join(f"{name} {folds[name].step_s(pool[0]) * 1e3:.1f} ms" for name in BOUNDS)
    print(f"{'':>16}  a step: {steps}; a copy: {median(copy.wall_s) * 1e3:.1f} ms", flush=True)
    return met


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
