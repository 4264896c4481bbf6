"""Run every benchmark: ``python -m benchmarks`` (or ``make bench``).

Each has a process of its own: a peak of memory is inherited, and would count against the next.
Names can be given to run only those. At the end docs/performance.md and
docs/participation.md are given the results. What
needs a GPU (``cuda``) or Ray (``ray_scaling``) runs only if it is named.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    *("training", "events", "server", "aggregation", "afa_cs", "timetable", "event_queue"),
    "store",
)


def main(names: list[str]) -> int:
    missed = []
    for name in names or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode != 0:
            missed.append(name)
    subprocess.run([sys.executable, "-m", "benchmarks.page"], check=True)
    print(f"\n{'missed: ' + ', '.join(missed) if missed else 'all within their bounds'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
