"""``anarchic.sweep``: every combination of settings, over seeds, recorded in one directory.

``sweep.json`` says what the sweep is, ``results.jsonl`` holds a line for each run that is done.
Whoever calls it again goes on with what is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, final

from anarchic.core.files import locked, write_file
from anarchic.core.reading import parse_json, read_file, reason
from anarchic.errors import AnarchicError, ConfigError, RunError
from anarchic.sim.settings import Settings
from anarchic.study.cell import Cell, Job
from anarchic.study.findings import Findings, Outcome
from anarchic.study.grid import Grid, said
from anarchic.study.parts import Parts, check_unchanged, parts_of
from anarchic.study.results import FILE, Result, Results, add_results, read_results
from anarchic.study.trainer import FAILED, train_all, train_in_processes
from anarchic.study.watch import watching
from anarchic.train.compute import Compute

DEFINITION = "sweep.json"
RUNS = "runs"  # run directories, if they are kept
MAX_JSON = 1 << 26
AT_ONCE = 16  # runs in a batch


@final
@dataclass(frozen=True)
class Sweep:
    """A sweep in a directory: its definition, and the results so far."""

    grid: Grid
    path: Path

    def results(self) -> Results:
        return read_results(self.path / FILE)

    def findings(self) -> Findings:
        """Its cells in order, each with the results of its own seeds."""
        results, seeds = self.results(), set(self.grid.seeds)
        cells = self.grid.cells()
        found = {cell.name: [r for r in results.of(cell) if r.seed in seeds] for cell in cells}
        return Findings([Outcome(cell, found[cell.name]) for cell in cells])

    def missing(self, *, retry: bool = False) -> list[Job]:
        """The runs that have no result; with ``retry`` also those that failed."""
        results = self.results()
        return [job for job in self.grid.jobs() if not _has(results, job, retry)]

    def parts(self) -> Parts:
        """Digests of the data, files and code that its runs are made of."""
        there = read_json(self.path / DEFINITION).get("parts", {})
        return there if isinstance(there, Mapping) else {}

    def note_parts(self, cells: Iterable[Cell]) -> None:
        """Keep the digests of what these cells are made of; refuse what has changed."""
        asked = [cell.settings for cell in cells if cell.measure is None]
        here = parts_of(each for each in asked if isinstance(each, Settings))
        there = self.parts()
        check_unchanged(there, here, self.path)
        if here.keys() - there.keys():
            _write(self.path / DEFINITION, {**self.grid.record(), "parts": {**there, **here}})

    def __repr__(self) -> str:
        done = self.grid.size - len(self.missing())
        return f"Sweep({self.path}: {done} of {self.grid.size} runs done)"


def sweep(
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    seed: int | Sequence[int] = 0,
    cases: Sequence[Mapping[str, Any]] = ({},),
    compute: Compute | None = None,
    jobs: int = 1,
    at_once: int | None = None,
    keep_runs: bool = False,
    retry: bool = False,
    **varied: Any,
) -> Sweep:
    """Train every combination of settings with every seed, and keep the results in ``out``.

    Every keyword of ``varied`` is a setting; a list or a range of values is varied, anything else
    is the same for all runs. ``settings`` holds further ones that are the same. ``cases`` are
    settings that go together, such as each rule with its own rate. Runs share batches of
    ``at_once``; ``jobs`` processes train batches at the same time. Each model is that of a single
    run, to the last byte on a CPU, however it was computed; losses of ``logistic`` agree to
    rounding. Called again, it goes on with what is missing; ``retry`` runs failed ones again.
    ``keep_runs`` records each run in ``out/runs`` as ``simulate`` does, with checkpoints, so that
    long runs go on in the middle.
    """
    grid = grid_of(settings, seed=seed, cases=cases, compute=compute, **varied)
    return run(grid, Path(out), jobs=jobs, at_once=at_once, keep_runs=keep_runs, retry=retry)


def grid_of(
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    seed: int | Sequence[int] = 0,
    cases: Sequence[Mapping[str, Any]] = ({},),
    compute: Compute | None = None,
    **varied: Any,
) -> Grid:
    """The definition of a sweep, from what ``sweep`` takes."""
    base = _differing(settings) if isinstance(settings, Settings) else dict(settings or {})
    several = {n: list(v) for n, v in varied.items() if isinstance(v, list | range)}
    base |= {name: value for name, value in varied.items() if name not in several}
    if "seed" in base:
        raise ConfigError("A sweep's seeds are given as seed, not among its settings.")
    seeds = [seed] if isinstance(seed, int) else list(seed)
    return Grid(
        base=base, varied=several, cases=list(cases), seeds=seeds, compute=computed(compute)
    )


def computed(compute: Compute | None) -> Compute:
    """Compiled where nobody chose: a run may be short, but it is one of many."""
    compute = compute or Compute()
    return compute if compute.compiled is not None else replace(compute, compiled=True)


def run(
    grid: Grid,
    path: Path,
    *,
    jobs: int = 1,
    at_once: int | None = None,
    keep_runs: bool = False,
    retry: bool = False,
) -> Sweep:
    """Train what is missing of a sweep, in the directory that is or will be its own."""
    _check(grid, jobs, at_once)
    with opened(grid, path) as found:
        todo = found.missing(retry=retry)
        found.note_parts(job.cell for job in todo)  # what cannot be loaded stops here
        out = path / RUNS if keep_runs else None
        batches = list(batches_of(todo, at_once or at_once_for(len(todo), jobs)))
        measured = [batch for batch in batches if batch[0].cell.measure is not None]
        trained = [batch for batch in batches if batch[0].cell.measure is None]
        with watching() as watch:
            if todo:
                watch.begin(len(todo))

            def keep(results: list[Result]) -> None:
                add_results(path / FILE, results)
                for result in results:
                    watch.done(line_of(result), f"{result.cell}.seed{result.seed}")

            train_all(measured, keep, watch.watch, out)
            if jobs == 1 or len(trained) == 1:
                train_all(trained, keep, watch.watch, out)
            elif trained:
                train_in_processes(trained, keep, watch.watch, out, jobs)
    return found


def _check(grid: Grid, jobs: int, at_once: int | None) -> None:
    for name, value in {"jobs": jobs, "at_once": at_once}.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}.")
    if jobs > 1 and grid.compute.backend == "ray":
        raise ConfigError(
            f"Ray spreads lanes over processes itself, got jobs={jobs} with backend='ray': leave "
            "out one of them."
        )


@contextmanager
def opened(grid: Grid, path: Path) -> Iterator[Sweep]:
    """The sweep's directory, made if it is new, for this process alone."""
    record, file = grid.record(), path / DEFINITION
    grid.cells()  # refuses what has no cell that could be run, before anything is written
    if path.exists() and not file.exists() and any(path.iterdir()):
        raise RunError(f"{path} is not empty and holds no sweep: choose another directory.")
    try:
        (path / RUNS).mkdir(parents=True, exist_ok=True)
        with locked(path / RUNS, wait=False):
            if not file.exists():
                _write(file, record)
            _same(read_json(file), record, path)
            yield Sweep(grid, path)
    except BlockingIOError as error:
        raise RunError(f"Another process is running the sweep in {path}: let it end.") from error


def _write(file: Path, record: Mapping[str, Any]) -> None:
    write_file(file, (json.dumps(record, indent=2) + "\n").encode())


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """The sweep in a directory, as far as it got."""
    where = Path(path)
    record = read_json(where / DEFINITION)
    try:
        return Sweep(Grid.from_record(record), where)
    except (KeyError, TypeError, AttributeError, AnarchicError) as error:
        raise RunError(
            f"{where / DEFINITION} is not the definition of a sweep: {reason(error)}."
        ) from error


def is_sweep(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / DEFINITION).is_file()


def read_json(path: Path) -> dict[str, Any]:
    """A definition that somebody may have edited."""
    try:
        found = parse_json(read_file(path, most=MAX_JSON))
    except FileNotFoundError as error:
        raise RunError(
            f"{path.parent} has no {path.name}: it is not the directory of a sweep."
        ) from error
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {reason(error)}.") from error
    if not isinstance(found, dict):
        raise RunError(f"{path} holds no object: choose another directory.")
    return found


def _same(there: Mapping[str, Any], here: Mapping[str, Any], path: Path) -> None:
    """Refuse a definition that is not the one of the directory."""
    old, new = _flat(there), _flat(here)
    other = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    if other:
        differ = "; ".join(
            f"{name} is {_told(old, name)} there and {_told(new, name)} here" for name in other
        )
        raise RunError(
            f"{path} holds another sweep: {differ}. Give the same settings to go on with it, or "
            "another directory: compare takes several."
        )


def _told(settings: Mapping[str, Any], name: str) -> str:
    return said(settings[name]) if name in settings else "not given"


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A definition by its settings; where data lie changes no result."""
    parts = (record.get(name) for name in ("base", "varied", "compute"))
    found = {name: v for part in parts if isinstance(part, Mapping) for name, v in part.items()}
    found |= {name: record.get(name) for name in ("cases", "seeds", "reads")}
    found.pop("data_dir", None)
    return found


def _differing(settings: Settings) -> dict[str, Any]:
    """The settings that somebody chose: those that are not the defaults."""
    plain = vars(Settings())
    if settings.seed != plain["seed"]:
        raise ConfigError("A sweep's seeds are given as seed, not among its settings.")
    return {name: value for name, value in vars(settings).items() if value != plain[name]}


def _has(results: Results, job: Job, retry: bool) -> bool:
    key = job.cell.task, job.cell.name, job.seed
    return results.has(job) and not (retry and results.by_key[key].stopped_at == FAILED)


def batches_of(todo: Sequence[Job], at_once: int) -> Iterator[list[Job]]:
    """Jobs that are trained together: of one task, so that they can share lanes."""
    order = {task: number for number, task in enumerate(dict.fromkeys(j.cell.task for j in todo))}
    ordered = sorted(todo, key=lambda job: order[job.cell.task])
    for _, group in groupby(ordered, lambda j: (j.cell.task, j.cell.measure is None)):
        alike = list(group)
        most = 1 if alike[0].cell.measure is not None else at_once
        yield from (alike[first : first + most] for first in range(0, len(alike), most))


def at_once_for(runs: int, jobs: int) -> int:
    """So many that every process has work."""
    return max(1, min(AT_ONCE, -(-runs // jobs)))


def line_of(result: Result) -> str:
    """What is printed of a result: the number that tables call final."""
    name = f"{result.cell} seed {result.seed}"
    if result.stopped_at in ("diverged", FAILED):
        return f"{name}: {result.stopped_at}: {result.numbers.get('reason', 'no reason known')}"
    for metric in ("accuracy", "val_accuracy", "loss", "val_loss"):
        if known := [value for value in result.curve.get(metric, ()) if value is not None]:
            return f"{name}: {metric} {known[-1]:.4f}"
    return f"{name}: done"
