"""Cells and seeds, run in batches; every result is kept as soon as its batch is done."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby

from anarchic.errors import ConfigError, RunError
from anarchic.sim.experiment import Experiment
from anarchic.sim.run import Run
from anarchic.sim.settings import Settings
from anarchic.sim.simulate import simulate_many
from anarchic.study.cell import Cell, Job
from anarchic.study.flags import Flags, Places
from anarchic.study.results import Result, accuracies, place, read_cell, result_of
from anarchic.study.study import IEEE, Study
from anarchic.study.watch import Bar, Lines, watching

SEEDS = 1  # where an experiment does not say
AT_ONCE = 16


def chosen(study: Study, flags: Flags) -> list[Cell]:
    """The cells that the flags ask for."""
    if flags.task is not None and flags.task not in study.tasks:
        raise ConfigError(
            f"{study.name} has no task {flags.task!r}; it has {', '.join(study.tasks)}."
        )
    cells = [cell for cell in study.cells if flags.task in (None, cell.task)]
    found = [cell for cell in cells if fnmatchcase(cell.name, flags.only or "*")]
    if not found:
        raise ConfigError(
            f"No cell of {study.name} fits {flags.only!r}; they are named as {cells[0].name!r}."
        )
    return found


def jobs(study: Study, flags: Flags, where: Places) -> list[Job]:
    """What is to be done: a task at a time, the first seed of every cell before the second."""
    cells = sorted(chosen(study, flags), key=lambda cell: cell.turn)
    here = (flags.graphs, flags.smoke, where.work)
    todo = []
    for task in study.tasks:
        precision = flags.precision or study.precision(task, flags.device)
        todo += [
            job
            for seed in range(_seeds(study, flags, task))
            for cell in cells
            if cell.task == task
            if not is_done(job := Job(cell, seed, flags.device, precision, *here), flags, where)
        ]
    _refuse_to_mix(todo, where)
    return todo


def is_done(job: Job, flags: Flags, where: Places) -> bool:
    path = where.results / place(job.cell.task, job.cell.name, job.seed)
    if not flags.resume or not path.exists():
        return False
    return job.cell.answered_by(Result.read(path).settings)


def run(study: Study, flags: Flags, where: Places) -> bool:
    """Do what is asked; False where the time was over before it was done."""
    todo = jobs(study, flags, where)
    deadline = None if flags.stop_after is None else time.monotonic() + flags.stop_after
    with watching() as watch:
        watch.begin(len(todo))
        lap = _Lap(flags, where, deadline, watch)
        return all(lap.go(batch) for batch in _batches(study, flags, todo))


@dataclass(frozen=True)
class _Lap:
    """One batch after another, until the deadline."""

    flags: Flags
    where: Places
    deadline: float | None
    watch: Lines | Bar

    def go(self, batch: Sequence[Job]) -> bool:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        start = time.perf_counter()
        if batch[0].cell.measure is not None:
            measured = batch[0].cell.measure(batch[0])
            share = time.perf_counter() - start
            self._keep(result_of(batch[0], measured, seconds=share, share_s=share), batch[0])
            return True
        runs = self._train(batch, left)
        share = (time.perf_counter() - start) / len(batch)
        for job in batch:
            if job.name in runs:
                self._keep(_of_run(job, runs[job.name], share), job)
        return len(runs) == len(batch)

    def _train(self, batch: Sequence[Job], left: float | None) -> dict[str, Run]:
        out = None if self.flags.smoke else self.where.work / batch[0].cell.task
        try:
            return simulate_many(
                {job.name: _what(job) for job in batch},
                compute=batch[0].compute,  # a batch is of one task, and so of one precision
                out=out,
                resume=self.flags.resume and out is not None,
                stop_after_s=left,
                watch=self.watch.watch,
            )
        except RunError as error:
            raise RunError(f"{error} Here that is --resume, or another --out.") from error

    def _keep(self, result: Result, job: Job) -> None:
        result.write(self.where.results)
        value, paper = result.numbers.get(job.cell.value), job.cell.paper
        found = "no value" if value is None else f"{value:.4f}"
        beside = "" if paper is None or job.smoke else f" (paper {paper:.4f})"
        self.watch.done(f"{job.cell.task} {job.name}: {found}{beside}")


def _what(job: Job) -> Settings | Experiment:
    return job.settings if job.cell.train is None else job.cell.train(job)


def _of_run(job: Job, run: Run, share: float) -> Result:
    """What is kept of a run; if it diverged, ``diverged_at`` is the version at which that was seen.

    On a GPU every sixteenth version is looked at, and those that are evaluated.
    """
    read = job.cell.read or accuracies
    trained, stopped_at = (run.summary.get(name) for name in ("train_seconds", "stopped_at"))
    end = {"diverged_at": run.summary["rounds"]} if stopped_at == "diverged" else {}
    return result_of(
        job,
        {**end, **read(run)},
        stopped_at=stopped_at,
        seconds=trained,
        share_s=max(share, trained or 0.0),  # a run that was resumed began in another batch
    )


def _refuse_to_mix(todo: Sequence[Job], where: Places) -> None:
    """A cell is of one precision: that of its results that stay."""
    anew = {place(job.cell.task, job.cell.name, job.seed) for job in todo}
    for job in {(job.cell.task, job.cell.name): job for job in todo}.values():
        for kept in read_cell(where.results, job.cell):
            if kept.precision != job.precision and kept.path not in anew:
                raise ConfigError(
                    f"{where.results / kept.path} was computed in {kept.precision}, its cell would "
                    f"now get results in {job.precision} too: give --precision {kept.precision}"
                    f"{'' if kept.precision == IEEE else ' and --device cuda'}, or remove it."
                )


def _seeds(study: Study, flags: Flags, task: str) -> int:
    if flags.smoke:
        return flags.seeds or 1
    return flags.seeds or study.seeds.get(task, SEEDS)


def _batches(study: Study, flags: Flags, todo: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs of one task that are trained together; a measurement is alone."""
    for (task, trained), group in groupby(
        todo, lambda job: (job.cell.task, job.cell.measure is None)
    ):
        most = flags.at_once or study.at_once.get(task, AT_ONCE) if trained else 1
        together = list(group)
        for first in range(0, len(together), most):
            yield together[first : first + most]
