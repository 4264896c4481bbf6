"""Runs many seeds, in several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tests.faults.plan import plan_of
from tests.faults.report import Report
from tests.faults.reverted import reverting
from tests.faults.world import Outcome, World


def run_seed(seed: int, revert: str | None = None, only: Sequence[str] = ()) -> Outcome:
    """What becomes of a seed; its history only if an invariant was broken."""
    with reverting(revert):
        outcome = World(plan_of(seed, only)).run()
    return outcome if outcome.violation else replace(outcome, history=[])


def run_many(
    seeds: range, jobs: int, revert: str | None = None, only: Sequence[str] = ()
) -> Report:
    """Run seeds and add them up, with a line of progress; Ctrl-C ends it with what was run."""
    report, run = Report(len(seeds)), partial(run_seed, revert=revert, only=only)
    with (
        multiprocessing.get_context("spawn").Pool(
            jobs, _ignore_interrupts, maxtasksperchild=100
        ) as pool,
        suppress(KeyboardInterrupt),
    ):
        for outcome in pool.imap_unordered(run, seeds, 4):
            report.add(outcome)
            report.show_progress()
    return report


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
