"""Jobs trained together as lanes of one batch, and what is kept of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anarchic.data.dataset import Dataset
from anarchic.errors import RunError
from anarchic.sim.run import Progress, Run
from anarchic.sim.settings import data_of
from anarchic.sim.simulate import simulate_many
from anarchic.study.cell import Job
from anarchic.study.results import Result, accuracies, result_of

Watch = Callable[[str, Progress], None]


def data_for(batch: Sequence[Job]) -> list[Dataset]:
    """The data sets of jobs; whoever keeps them has them read once for all jobs."""
    plain = [job for job in batch if job.cell.train is None and job.cell.measure is None]
    return [data_of(job.settings_of(job.cell.settings)) for job in plain]


def train_batch(
    batch: Sequence[Job],
    *,
    out: Path | None = None,
    resume: bool = False,
    stop_after_s: float | None = None,
    watch: Watch | None = None,
) -> list[tuple[Job, Result]]:
    """The results of jobs of one kind; of those that were done by ``stop_after_s``, if given.

    All are trained as one batch. Each model is that of the job alone, losses are to rounding. A
    measurement is alone.
    ``out`` is a folder for their run directories.
    """
    start = time.perf_counter()
    if (measure := batch[0].cell.measure) is not None:
        found = measure(batch[0])
        took = time.perf_counter() - start
        return [(batch[0], result_of(batch[0], found, seconds=took, share_s=took))]
    try:
        runs = simulate_many(
            {job.name: job.experiment() for job in batch},
            compute=batch[0].compute,  # the same for all of a batch
            out=out,
            resume=resume and out is not None,
            stop_after_s=stop_after_s,
            watch=watch,
        )
    except RunError as error:
        raise RunError(f"{error} Here that is --resume, or another --out.") from error
    share = (time.perf_counter() - start) / len(batch)
    return [(job, _of_run(job, runs[job.name], share)) for job in batch if job.name in runs]


def _of_run(job: Job, run: Run, share: float) -> Result:
    """The result of a run; ``diverged_at`` is the version at which a divergence was seen.

    A GPU checks every sixteenth version, and those that are evaluated.
    """
    read: Callable[[Run], Mapping[str, Any]] = job.cell.read or accuracies
    trained, stopped_at = (run.summary.get(name) for name in ("train_seconds", "stopped_at"))
    end = {"diverged_at": run.summary["rounds"]} if stopped_at == "diverged" else {}
    return result_of(
        job,
        {**end, **read(run)},
        stopped_at=stopped_at,
        seconds=trained,
        share_s=max(share, trained or 0.0),  # a run that was resumed began in another batch
    )
