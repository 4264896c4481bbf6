"""Runs seeds: ``make simulate-faults``, or one that failed.

python -m tests.faults --seeds 10000
python -m tests.faults --seed 1234 --shrink
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.faults.plan import KINDS, STEER, Plan, plan_of
from tests.faults.reverted import REVERTED, reverting
from tests.faults.seeds import run_many
from tests.faults.shrink import shrunk
from tests.faults.world import World


def run_one(plan: Plan, revert: str | None, *, shrink: bool) -> int:
    """Run one seed and print its history."""
    with reverting(revert):
        outcome = World(plan).run()
        if shrink and outcome.violation is not None:
            plan, outcome = shrunk(plan)
    told = f"seed {plan.seed}: {plan.rule}, m={plan.m}, step_after_s={plan.step_after_s}"
    numbers = " ".join(str(event.number) for event in plan.events)
    print("\n".join([told, f"events {numbers}", *outcome.history]))  # noqa: T201
    print(outcome.violation or "every invariant held")  # noqa: T201
    return 1 if outcome.violation else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and print its history")
    parser.add_argument("--shrink", action="store_true", help="leave out events while it fails")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--revert", choices=sorted(REVERTED), help="bring a mended defect back")
    parser.add_argument(
        "--only", nargs="+", choices=[*KINDS, STEER], default=(), help="faults to inject"
    )
    args = parser.parse_args()
    if args.seed is not None:
        return run_one(plan_of(args.seed, args.only), args.revert, shrink=args.shrink)
    seeds = range(args.first, args.first + args.seeds)
    report = run_many(seeds, args.jobs, args.revert, args.only)
    print(report.text())  # noqa: T201
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
