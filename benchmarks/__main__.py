"""Run every benchmark: ``python -m benchmarks`` (or ``make bench``)."""

from __future__ import annotations

import sys

from benchmarks import afa_cs, server, store, timetable, training


def main() -> int:
    missed = []
    for benchmark in (training, afa_cs, timetable, store, server):
        print(f"\n== {benchmark.__name__.split('.')[-1]}: {benchmark.__doc__.splitlines()[0]}")
        if benchmark.main() != 0:
            missed.append(benchmark.__name__)
    print(f"\n{'missed: ' + ', '.join(missed) if missed else 'all within their bounds'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
