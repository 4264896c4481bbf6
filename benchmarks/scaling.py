"""The model of `docs/scaling.md`, held against a simulation of 1,000,000 workers.

    python -m benchmarks.scaling            # simulate, print, keep in results.jsonl
    python -m benchmarks.scaling --write    # and the tables and pictures of docs/scaling.md

Collectors are as fast as the one measured by ``benchmarks.one_machine``. Exits with 1 if a
formula is off by more than its bound, or if the simulation needs more than 60 s of a core or 4 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict
from typing import Any

from anarchic.server.settings import Limits
from benchmarks.fleet import Assumptions, Collector, Plan
from benchmarks.million import Simulated, simulate
from benchmarks.one_machine import PLACES
from benchmarks.record import Record, keep, read, short
from benchmarks.scaling_page import write_page

WORKERS = 1_000_000
ROOM = Limits().waiting_bodies
SIZES = {"40 KB": 4e4, "4 MB": 4e6, "100 MB": 1e8}
MOST_S, MOST_GIB = 60.0, 4.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--write", action="store_true", help="the tables of docs/scaling.md too")
    settings = parser.parse_args()
    measured = read()["one_machine"]
    collector = measured_collector(measured)
    found = simulate(collector, settings.workers)
    found.facts.update(cpu_s=time.process_time(), peak_gib=peak_gib())
    plans = plans_for(collector)
    print_table(found, plans)
    if settings.workers == WORKERS:
        keep_found(found, plans)
    if settings.write:
        write_page(found, plans, measured)
    quick = found.facts["cpu_s"] < MOST_S and found.facts["peak_gib"] < MOST_GIB
    return 0 if quick and all(row.met for row in found.rows) else 1


def measured_collector(measured: Record) -> Collector:
    """A collector like the machine that was measured, with every place taken."""
    measures = {(m.group, m.name): m for m in measured.measures}
    small, large = (measures[body, f"{PLACES} senders"] for body in ("40 KB", "4 MB"))
    return Collector.through(
        (SIZES["40 KB"], small.median),
        (SIZES["4 MB"], large.median),
        disk=measures["disk", "append and sync"].median * 1e6,
        places=PLACES,
        room=ROOM,
        variability=large.facts["variability"],
    )


def plans_for(collector: Collector) -> dict[str, Plan]:
    return {name: Plan(Assumptions(), collector, size) for name, size in SIZES.items()}


def print_table(found: Simulated, plans: dict[str, Plan]) -> None:
    print(f"{'':<62}{'model':>12}{'simulated':>12}{'difference':>12}")
    for row in found.rows:
        numbers = f"{short(row.model):>12}{short(row.simulated):>12}{row.difference:>+12.1%}"
        print(f"{row.name:<62}{numbers} {row.unit}{'' if row.met else '  MISSED'}")
    print("; ".join(f"{name} {short(value)}" for name, value in found.facts.items()))
    for name, plan in plans.items():
        print(
            f"{name}: {plan.collectors:,} collectors, {plan.roots} for the root, m = {plan.m:,}, "
            f"${plan.cost:,.0f} a month"
        )


def keep_found(found: Simulated, plans: dict[str, Plan]) -> None:
    values: dict[str, Any] = {
        "name": "scaling",
        "assumptions": asdict(Assumptions()),
        "collector": asdict(plans["4 MB"].collector),
        "plans": {name: plan.outputs() for name, plan in plans.items()},
        "compared": [{**asdict(row), "difference": row.difference} for row in found.rows],
        "sweep": found.sweep,
        "staleness": found.staleness,
        "facts": found.facts,
    }
    short_floats = json.loads(
        json.dumps(values), parse_float=lambda text: float(f"{float(text):.8g}")
    )
    keep(short_floats)


def peak_gib() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


if __name__ == "__main__":
    sys.exit(main())
