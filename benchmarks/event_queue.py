"""How long the event queue takes per visit: 10,000 workers whose timing depends on the server.

    python -m benchmarks event_queue            # keeps the result and writes docs/participation.md
    python -m benchmarks.event_queue --updates 100000 --out elsewhere.jsonl

Time is that of the CPU, so that other programs on the machine count little; the cases take turns.
Exits with 1 if the bound is missed: 1,000,000 visits per minute on one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from anarchic.participation import Coupling, timetable_blocks
from benchmarks.record import RESULTS, Record
from benchmarks.timetable import DIURNAL, EXPONENTIAL, SEED, M

WORKERS = 10_000
LEAST_PER_MINUTE = 1_000_000
CASES: Mapping[str, Coupling] = {
    "limit": Coupling(max_concurrent=100),
    "refusal": Coupling(refuse_staleness=1, retries=2),
    "timer": Coupling(step_every_s=3.0),
    "skip": Coupling(skip_unchanged=True),
    "random picks": Coupling(server_picks="random", max_concurrent=500),
    "free picks": Coupling(server_picks="free", max_concurrent=500),
    "cohorts": Coupling(server_picks="cohort", max_concurrent=150),
}


def seconds_per_visit(diurnal: bool, coupling: Coupling, updates: int) -> float:
    """CPU time of one visit; those in vain count as visits."""
    process, visits = DIURNAL if diurnal else EXPONENTIAL, 0
    start = time.process_time()
    asked = {"workers": WORKERS, "m": M, "rounds": updates // M, "rng": SEED, "size": 1 << 16}
    for block in timetable_blocks(process, **asked, coupling=coupling):
        assert block.wasted is not None
        in_vain = block.wasted.total
        visits += len(block) + sum(in_vain[n] for n in ("refused", "skipped", "stopped", "lost"))
    return (time.process_time() - start) / visits


def cases() -> Iterator[tuple[str, bool, Coupling]]:
    """Every coupling, with exponential and with diurnal workers where these come by themselves."""
    for name, coupling in CASES.items():
        for diurnal in (False, True)[: 1 if coupling.server_picks else 2]:
            yield f"{name}, diurnal" if diurnal else name, diurnal, coupling


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    what = f"Event queue: {WORKERS:,} workers, {settings.updates:,} updates, m = {M}"
    record = Record("event_queue", what)
    found: dict[str, list[float]] = {}
    for _ in range(settings.repeats):
        for group, diurnal, coupling in cases():
            took = seconds_per_visit(diurnal, coupling, settings.updates)
            found.setdefault(group, []).append(took)
    medians: list[float] = []
    for group, took in found.items():
        micros = [1e6 * seconds for seconds in took]
        record.measure("CPU per visit", micros, unit="µs", better="lower", group=group)
        rates = [60 / seconds for seconds in took]
        medians.append(record.measure("visits per minute", rates, unit="1/min", group=group))
    record.bound("visits per minute, the least", min(medians), least=LEAST_PER_MINUTE)
    return record.finish(settings.out)


if __name__ == "__main__":
    sys.exit(main())
