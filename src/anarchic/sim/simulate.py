"""``simulate`` and ``simulate_many``: experiments from the first version to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from anarchic.callbacks.callback import Callback, as_list, check_callbacks
from anarchic.callbacks.progress import ProgressBar
from anarchic.core.options import says_options
from anarchic.errors import ConfigError
from anarchic.sim.engine import Engine
from anarchic.sim.experiment import Experiment
from anarchic.sim.group import RunGroup
from anarchic.sim.record import SUMMARY, RunDirectory
from anarchic.sim.resume import recorded, reopen
from anarchic.sim.run import ActiveRun, Progress, Run, Watcher
from anarchic.sim.settings import Settings, build
from anarchic.train.compute import Compute


@says_options
def simulate(
    what: Settings | Experiment | None = None,
    *,
    compute: Compute | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    watch: Watcher | None = None,
    callbacks: Callback | str | Iterable[Callback | str] = (),
    progress: bool = False,
) -> Run:
    """Train in virtual time, and record it in ``out`` if that is given.

    ``compute`` says how ``Settings`` are computed; an ``Experiment`` says so itself. The process is
    set up for it while the run lasts. With ``resume`` a run that was cut off goes on from its last
    checkpoint, to the same bytes as if it had not been; ``what`` and ``compute`` are then that
    run's own where they are left out. With more ``rounds`` or a later ``until_s`` it goes on
    further, finished or not, to the model of a run that was asked for so much at once.
    Checkpoints are written every ``checkpoint_every`` rounds (None: every minute). ``watch`` is
    called after every round; a KeyboardInterrupt that it raises ends the run there, after a
    checkpoint. ``callbacks``, one or several, hear what happens (see ``Callback``); they and
    ``watch`` end the run by raising ``Stop``. Those given by name, as on the command line, are
    recorded: the run has them again when it is resumed without ``callbacks``. ``progress`` shows a
    bar, in a notebook too.

    >>> run = simulate(Settings(rounds=20, max_staleness=4, batch=16))
    >>> run.accuracy > 0.8
    True
    """
    _check_interval(checkpoint_every)
    if resume and out is None:
        raise ConfigError("A run is resumed from its directory: give it as out.")
    if compute is not None and isinstance(what, Experiment):
        raise ConfigError(
            "compute is for Settings; an Experiment has its own task, backend, threads and "
            "lookahead: leave it out."
        )
    directory = None if out is None else Path(out)
    if what is None:
        what = Settings()
        if resume and directory is not None:
            what = Settings.from_record(RunDirectory(directory).settings())
    given = as_list(callbacks)
    if resume and directory is not None:
        given = given or RunDirectory(directory).settings().get("callbacks", [])
    heard = check_callbacks(given)
    names = [each for each in given if isinstance(each, str)]
    experiment, record = _opened(what, compute, directory, resume, names)
    if record is not None and record.finished:
        return _finished(experiment, record)
    heard += [ProgressBar()] if progress else []
    name = "run" if directory is None else directory.resolve().name
    watcher = watch or (lambda progress: None)
    run = ActiveRun(Engine(experiment), record, checkpoint_every, watcher, heard, name)
    return RunGroup({"": run}).train()[""]


@says_options
def simulate_many(
    runs: Mapping[str, Settings | Experiment],
    *,
    compute: Compute | None = None,
    out: Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    stop_after_s: float | None = None,
    watch: Callable[[str, Progress], None] | None = None,
    callbacks: Callable[[str], Callback | Iterable[Callback]] | None = None,
) -> dict[str, Run]:
    """Train all of them and record each in ``out/name``; every run is as it would be alone.

    Runs of one model on one data set are lanes of one batch, which is what a GPU wants. ``compute``
    says how those that are ``Settings`` are computed. With ``resume`` runs whose directory exists
    go on, the others start. ``stop_after_s`` writes checkpoints after this many seconds and returns
    only the runs that are finished by then. A KeyboardInterrupt raised by ``watch`` also writes
    them. A run that diverges ends there (``summary["stopped_at"]`` says so) and the others go on.
    ``callbacks`` makes those of each run from its name.
    """
    _check_interval(checkpoint_every)
    deadline = None if stop_after_s is None else time.monotonic() + stop_after_s
    ended: dict[str, Run] = {}
    active: dict[str, ActiveRun] = {}
    for name, what in runs.items():
        directory = None if out is None else out / name
        known = resume and directory is not None and (directory / "settings.json").exists()
        experiment, record = _opened(what, compute, directory, known)
        if record is not None and record.finished:
            ended[name] = _finished(experiment, record)
            continue
        watcher = (lambda progress: None) if watch is None else partial(watch, name)
        heard = check_callbacks([] if callbacks is None else callbacks(name))
        active[name] = ActiveRun(Engine(experiment), record, checkpoint_every, watcher, heard, name)
    for group in _groups(active):
        ended |= RunGroup({name: active.pop(name) for name in group}, go_on=True).train(deadline)
    return {name: ended[name] for name in runs if name in ended}


def _check_interval(checkpoint_every: int | None) -> None:
    if checkpoint_every is not None and checkpoint_every < 1:
        raise ConfigError(f"checkpoint_every must be at least 1 round, got {checkpoint_every}.")


def _opened(
    what: Settings | Experiment,
    compute: Compute | None,
    directory: Path | None,
    resume: bool,
    callbacks: Sequence[str] = (),
) -> tuple[Experiment, RunDirectory | None]:
    """What is to be run, and its directory: a new one, or with ``resume`` its own."""
    if not isinstance(what, Settings | Experiment):
        raise ConfigError(f"simulate takes Settings or an Experiment, got {what!r}.")
    if resume and directory is not None:
        return reopen(what, compute, directory, callbacks)
    experiment = what if isinstance(what, Experiment) else build(what, compute)
    if directory is None:
        return experiment, None
    settings = recorded(experiment, callbacks)
    return experiment, RunDirectory.create(directory, settings, experiment.timetable)


def _finished(experiment: Experiment, record: RunDirectory) -> Run:
    """A run that was recorded to its end."""
    params = record.model(experiment.task.layout)
    unknown = dict.fromkeys((*SUMMARY, "stopped_at"))  # that another version did not write
    summary, layout = {**unknown, **record.summary()}, experiment.task.layout
    return Run(params, record.metrics(), summary, layout, record.per_worker())


def _groups(runs: Mapping[str, ActiveRun]) -> list[list[str]]:
    """Names of runs that can share a batch."""
    groups: dict[Hashable, list[str]] = {}
    for name, run in runs.items():
        experiment = run.engine.experiment
        key = experiment.task.batch_key, type(experiment.backend), experiment.threads
        groups.setdefault(key, []).append(name)
    return list(groups.values())
