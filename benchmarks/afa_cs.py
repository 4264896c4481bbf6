"""AFA-CS: the price of an update does not grow with the workers, nor the error with the updates.

    python -m benchmarks.afa_cs

Exits with 1 if an update with 100,000 workers takes more than 1.5 times as long as one with
10,000, or if after a million updates the running mean is off by more than 1e-6 of its norm.
The first part needs 4.5 GB of memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from anarchic import AfaCs, Update
from anarchic.core.rules.table import TableState
from benchmarks.record import RESULTS, Record

DIM = 10_000
FEW, MANY = 10_000, 100_000
MOST_RATIO = 1.5
REPEATS, TIMED = 9, 4_000

DRIFT_DIM, DRIFT_WORKERS, DRIFT_UPDATES = 1_000, 1_000, 1_000_000
MOST_DRIFT = 1e-6

POOL = 64  # directions to draw from: making them is not what is timed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    record, rng = Record("afa_cs", f"AFA-CS: an update of d = {DIM:,}"), np.random.default_rng(0)
    few, many = (
        record.measure(f"update, {workers:,} workers", times, unit="us", better="lower")
        for workers, times in microseconds_an_update(rng).items()
    )
    record.ratio("many workers / few", many / few, most=MOST_RATIO)
    drift = running_mean_error(rng)
    record.bound(f"error of the mean after {DRIFT_UPDATES:,} updates", drift, most=MOST_DRIFT)
    return record.finish(out)


def microseconds_an_update(rng: np.random.Generator) -> dict[int, list[float]]:
    """By workers, in repeats that take turns, so that a busy machine slows both alike."""
    rule = AfaCs(m=10)
    pool = directions(rng, DIM)
    states = {workers: warmed(rule, workers, pool) for workers in (FEW, MANY)}
    times: dict[int, list[float]] = {FEW: [], MANY: []}
    for _ in range(REPEATS):
        for workers, state in states.items():
            updates = random_updates(rng, workers, pool, TIMED)
            start = time.perf_counter()
            for update in updates:
                state = rule.receive(state, update)
            times[workers].append(1e6 * (time.perf_counter() - start) / TIMED)
    return times


def running_mean_error(rng: np.random.Generator) -> float:
    """How far the running mean is from a fresh one, as a share of its norm."""
    rule = AfaCs(m=10)
    # Of sizes nine powers of ten apart: float32 rows of one size add up without any rounding.
    pool = [row * 10.0 ** (index % 10 - 5) for index, row in enumerate(directions(rng, DRIFT_DIM))]
    state = warmed(rule, DRIFT_WORKERS, pool)
    for _ in range(DRIFT_UPDATES // 10_000):
        for update in random_updates(rng, DRIFT_WORKERS, pool, 10_000):
            state = rule.receive(state, update)
    fresh = state.rows.pack()[0]["rows"].astype(np.float64).mean(axis=0)
    error = state.total / len(state.rows) - fresh
    return float(np.linalg.norm(error) / np.linalg.norm(fresh))


def directions(rng: np.random.Generator, dim: int) -> list[np.ndarray]:
    return list(rng.normal(size=(POOL, dim)).astype(np.float32))


def warmed(rule: AfaCs, workers: int, pool: list[np.ndarray]) -> TableState:
    """A state in which every worker already has a row."""
    state = rule.init(np.zeros_like(pool[0]))
    for index in range(workers):
        state = rule.receive(state, Update(str(index), 0, 1, 0.1, pool[index % POOL]))
    return state


def random_updates(
    rng: np.random.Generator, workers: int, pool: list[np.ndarray], count: int
) -> list[Update]:
    who, rates = rng.integers(0, workers, count), rng.uniform(0.01, 0.1, count)
    what = rng.integers(0, POOL, count)
    return [
        Update(str(worker), 0, 1, rate, pool[index])
        for worker, rate, index in zip(who.tolist(), rates.tolist(), what.tolist(), strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
