"""How long what is missing of a sweep will take: from its own results, or from a short trial."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anarchic.errors import AnarchicError
from anarchic.sim.settings import Settings, build, data_of
from anarchic.sim.simulate import simulate
from anarchic.study.cell import Job
from anarchic.study.sweeps import Sweep

TRIAL = 10  # rounds


@dataclass(frozen=True)
class SweepEstimate:
    """The runs that are missing, and about how many seconds they take; None: not known."""

    runs: int
    missing: int
    seconds: float | None
    basis: str


def estimate(found: Sweep, *, jobs: int = 1, retry: bool = False) -> SweepEstimate:
    """What is left of a sweep, on this machine with this many processes."""
    todo = [job for job in found.missing(retry=retry) if job.cell.measure is None]
    done = [r.share_s for r in found.results().by_key.values() if r.share_s and not r.diverged]
    if not todo:
        return SweepEstimate(found.grid.size, 0, 0.0, "nothing is missing")
    if done:
        each = sum(done) / len(done)
        seconds = len(todo) * each / jobs
        return SweepEstimate(
            found.grid.size, len(todo), seconds, f"by the {len(done)} runs that are done"
        )
    tried = _trial(_one_per_task(todo))
    if tried is None:
        return SweepEstimate(found.grid.size, len(todo), None, "the trial failed")
    seconds = sum(tried[job.cell.task] for job in todo) / jobs
    return SweepEstimate(found.grid.size, len(todo), seconds, f"by a trial of {TRIAL} rounds")


def _one_per_task(todo: Sequence[Job]) -> list[Job]:
    return list({job.cell.task: job for job in reversed(todo)}.values())


def _trial(jobs: Sequence[Job]) -> dict[str, float] | None:
    """Seconds of a run of each task; None where one fails, as it may when it is run."""
    found = {}
    try:
        for job in jobs:
            settings = job.settings_of(job.cell.settings)
            found[job.cell.task] = _seconds(job, settings)
    except AnarchicError:
        return None
    return found


def _seconds(job: Job, settings: Settings) -> float:
    """A short run, of which training grows with the rounds, the rest with the evaluations."""
    data = data_of(settings)  # it stays in memory meanwhile
    short = replace(settings, rounds=min(TRIAL, settings.rounds), until_s=None)
    took = train = 0.0
    for _ in range(2):  # the first loads and compiles
        experiment, start = build(short, job.compute), time.perf_counter()
        run = simulate(experiment)
        took, train = time.perf_counter() - start, run.summary["train_seconds"]
    whole = build(settings, job.compute)
    rounds = whole.timetable.rounds / run.summary["rounds"]
    evaluations = len(whole.evaluated) / len(experiment.evaluated)
    del data
    return float(train * rounds + (took - train) * evaluations)
