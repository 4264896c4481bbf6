"""``anarchic reproduce``: run the cells of an experiment in batches, and make its pages.

Results are written as soon as their batch is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby, islice

from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError
from anarchic.study import find
from anarchic.study.batch import data_for, train_batch
from anarchic.study.cell import Cell, Job
from anarchic.study.findings import Findings, read_findings
from anarchic.study.flags import Flags, Paths, paths
from anarchic.study.found import write_findings
from anarchic.study.overview import write_overview, write_readme
from anarchic.study.page import write_pages
from anarchic.study.results import IEEE, Result, Results, add_results, read_results
from anarchic.study.study import Study
from anarchic.study.watch import Bar, Printed, say, watching

AT_ONCE = 16  # where an experiment does not say


def reproduce(study: Study, flags: Flags) -> Findings:
    """Run what the flags ask for, write the results, and make the pages."""
    study = study.smoke() if flags.smoke else study
    where = paths(study, flags)
    chosen(study, flags)
    if flags.smoke:
        say("A smoke run, tiny and on embedded data: does it run? Its numbers are no results.")
    if study.results_of is not None and not flags.smoke:
        say(f"{study.name} is made of the results of {study.results_of}: nothing is trained here.")
    elif not flags.report and not run(study, flags, where):
        say("The time was over before all was done: to go on, add --resume.")
    if where.shown == where.shipped:
        say(f"There is no {where.results}: the pages show the results that came with the package.")
    findings = read_findings(study.cells, where.shown)
    say(f"Written: {write_pages(study, findings, where.pages)}.")
    return findings


def reproduce_all(flags: Flags) -> None:
    """Every experiment; then one page of them all, unless it was a smoke run."""
    if flags.out is not None or flags.only is not None:
        raise ConfigError("--out and --only are for one experiment, not for all.")
    studies = [find.load(name) for name in find.names()]
    for study in studies:
        if flags.task in (None, *study.tasks):
            reproduce(study, flags)
    if not flags.smoke:
        for path in (write_overview(studies), write_findings(studies), write_readme(studies)):
            if path is not None:
                say(f"Written: {path}.")


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


def jobs(study: Study, flags: Flags, where: Paths) -> list[Job]:
    """The jobs to do: task by task, the first seed of every cell before the second."""
    cells = sorted(chosen(study, flags), key=lambda cell: cell.turn)
    here = (flags.graphs, flags.smoke, where.work)
    known = read_results(where.results)
    todo = []
    for task in study.tasks:
        precision = flags.precision or study.precision(task, flags.device)
        todo += [
            job
            for seed in study.seeds_of(task, flags.seeds or (1 if flags.smoke else None))
            for cell in cells
            if cell.task == task
            for job in [Job(cell, seed, flags.device, precision, *here)]
            if not (flags.resume and known.has(job))
        ]
    _refuse_to_mix(todo, known, where)
    return todo


def run(study: Study, flags: Flags, where: Paths) -> bool:
    """Run what the flags ask for; False where the time was over before it was done."""
    todo = jobs(study, flags, where)
    deadline = None if flags.stop_after is None else time.monotonic() + flags.stop_after
    with watching() as watch:
        watch.begin(len(todo))
        runner = _Runner(flags, where, deadline, watch)
        return all(runner.run(batch) for batch in _batches(study, flags, todo))


@dataclass(frozen=True)
class _Runner:
    """One batch after another, until the deadline."""

    flags: Flags
    where: Paths
    deadline: float | None
    watch: Printed | Bar
    _held: list[list[Dataset]] = field(default_factory=list)

    def run(self, batch: Sequence[Job]) -> bool:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        out = None if self.flags.smoke else self.where.work / batch[0].cell.task
        self._held[:] = [data_for(batch)]  # those of the last batch are kept for the next
        done = train_batch(
            batch,
            out=out,
            resume=self.flags.resume,
            stop_after_s=left,
            watch=self.watch.watch,
        )
        if done:
            self._keep(done)
        return len(done) == len(batch)

    def _keep(self, results: Sequence[tuple[Job, Result]]) -> None:
        add_results(self.where.results, [result for _, result in results])
        for job, result in results:
            value, paper = result.numbers.get(job.cell.value), job.cell.paper
            found = "no value" if value is None else f"{value:.4f}"
            beside = "" if paper is None or job.smoke else f" (paper {paper:.4f})"
            self.watch.done(f"{job.cell.task} {job.name}: {found}{beside}", job.name)


def _refuse_to_mix(todo: Sequence[Job], known: Results, where: Paths) -> None:
    """All results of a cell have one precision: that of the results that are kept."""
    again = {(job.cell.task, job.cell.name, job.seed) for job in todo}
    for job in {(job.cell.task, job.cell.name): job for job in todo}.values():
        for kept in known.of(job.cell):
            if kept.precision != job.precision and kept.key not in again:
                raise ConfigError(
                    f"{kept.task} {job.cell.name}.seed{kept.seed} in {where.results} was computed "
                    f"in {kept.precision}, its cell would now get results in {job.precision} too: "
                    f"give --precision {kept.precision}"
                    f"{'' if kept.precision == IEEE else ' and --device cuda'}, or remove its line."
                )


def _batches(study: Study, flags: Flags, todo: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs of one task that are trained together; a measurement is alone."""
    for (task, trained), group in groupby(todo, lambda j: (j.cell.task, j.cell.measure is None)):
        most = flags.at_once or study.at_once.get(task, AT_ONCE) if trained else 1
        while batch := list(islice(group, most)):
            yield batch
