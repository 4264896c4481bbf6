"""How long the event queue takes per visit: 10,000 workers whose timing depends on the server.

    python -m benchmarks.event_queue            # bound: 1,000,000 visits per minute on one core
    python -m benchmarks.event_queue --updates 100000 --out elsewhere

Time is that of the CPU, so that other programs on the machine count little. Exits with 1 if the
bound is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
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


def per_minute(diurnal: bool, coupling: Coupling, updates: int) -> float:
    """Visits per minute of one core, those in vain included."""
    process, visits = DIURNAL if diurnal else EXPONENTIAL, 0
    start = time.process_time()
    asked = {"workers": WORKERS, "m": M, "rounds": updates // M, "rng": SEED, "size": 1 << 16}
    for block in timetable_blocks(process, **asked, coupling=coupling):
        assert block.wasted is not None
        in_vain = block.wasted.total
        visits += len(block) + sum(in_vain[n] for n in ("refused", "skipped", "stopped", "lost"))
    return 60 * visits / (time.process_time() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    what = f"Event queue: {WORKERS:,} workers, {settings.updates:,} updates, m = {M}"
    record = Record("event_queue", what)
    for name, coupling in CASES.items():
        for diurnal in (False, True)[: 1 if coupling.server_picks else 2]:
            group = f"{name}, diurnal" if diurnal else name
            rate = per_minute(diurnal, coupling, settings.updates)
            record.measure("visits per minute", [rate], unit="1/min", group=group)
            record.bound(f"{group}: visits per minute", rate, least=LEAST_PER_MINUTE)
    return record.finish(settings.out)


if __name__ == "__main__":
    sys.exit(main())
