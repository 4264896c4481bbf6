"""``simulate``: an experiment from its first version to its last, watched and recorded."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core.arrays import on_host
from anarchic.core.types import Vector
from anarchic.errors import ConfigError, Diverged
from anarchic.participation.timetable import Timetable
from anarchic.sim.engine import Walk
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import FORMAT, Metrics, RunDirectory
from anarchic.sim.settings import Settings, build

CHECKPOINT_S = 60.0  # without a number of rounds, a checkpoint is written this often


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every round."""

    round: int
    rounds: int
    updates: int
    latest: Metrics  # of the last evaluation


Watcher = Callable[[Progress], None]


@dataclass(frozen=True)
class Run:
    """A finished run: the last model, a row of metrics for each evaluation, and the summary."""

    params: Vector
    metrics: list[Metrics]
    summary: dict[str, Any]

    @property
    def accuracy(self) -> float | None:
        """At the end."""
        value: float | None = self.summary["final_accuracy"]
        return value


def simulate(
    what: Settings | Experiment | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    watch: Watcher | None = None,
) -> Run:
    """Train in virtual time, and record it in ``out`` if that is given.

    With ``resume`` a run that was cut off goes on from its last checkpoint, to the same bytes as
    if it had not been; ``what`` is then that run's own settings, and otherwise the defaults, where
    it is left out. Checkpoints are written every ``checkpoint_every`` rounds (None: every minute).
    ``watch`` is called after every round; a KeyboardInterrupt that it raises ends the run there,
    after a checkpoint.

    >>> run = simulate(Settings(rounds=20, max_staleness=4, batch=16))
    >>> run.accuracy > 0.8
    True
    """
    if checkpoint_every is not None and checkpoint_every < 1:
        raise ConfigError(f"checkpoint_every must be at least 1 round, got {checkpoint_every}.")
    if resume and out is None:
        raise ConfigError("A run is resumed from its directory: give it as out.")
    if what is None:
        what = _settings_of(out if resume else None)
    experiment = build(what) if isinstance(what, Settings) else what
    if not isinstance(experiment, Experiment):
        raise ConfigError(f"simulate takes Settings or an Experiment, got {what!r}.")
    record = open_record(experiment, Path(out), resume) if out is not None else None
    if record is not None and record.finished:
        return finished(experiment, record)
    journey = Journey(Walk(experiment), record, checkpoint_every, watch or (lambda progress: None))
    journey.begin()
    while journey.more:
        journey.train()
        if journey.due:
            journey.evaluate()
        try:
            journey.after_round()
        except KeyboardInterrupt:  # between two rounds, so that nothing is half done
            journey.save()
            raise
    return journey.finish()


@dataclass
class Journey:
    """A walk with its clock, its metrics and its record."""

    walk: Walk
    record: RunDirectory | None
    checkpoint_every: int | None
    watch: Watcher
    metrics: list[Metrics] = field(default_factory=list)
    train_seconds: float = 0.0
    saved_at: float = field(default_factory=time.monotonic)
    stopped: str = "rounds"
    _evaluated: frozenset[int] = frozenset()

    def begin(self) -> None:
        """From the start, or from the last checkpoint."""
        self._evaluated = self.walk.experiment.evaluated
        self._restore()
        if not self.metrics:
            self.evaluate()

    @property
    def more(self) -> bool:
        return self.walk.version < self.walk.experiment.timetable.rounds and not self._on_target()

    @property
    def due(self) -> bool:
        """Whether this version is one to evaluate."""
        return self.walk.version in self._evaluated

    def after_round(self) -> None:
        walk = self.walk
        self._save_if_due()
        rounds = walk.experiment.timetable.rounds
        self.watch(Progress(walk.version, rounds, walk.row, self.metrics[-1]))

    def finish(self) -> Run:
        if self.stopped != "diverged" and self.metrics[-1]["round"] != self.walk.version:
            self.evaluate()
        summary = _summary(self)
        params, layout = on_host(self.walk.state.params), self.walk.experiment.task.layout
        if self.record is not None:
            self.record.finish(layout, params, summary, self.walk.version)
        return Run(params, self.metrics, summary)

    def train(self) -> None:
        start = time.perf_counter()
        try:
            self.walk.next_version()
        except Diverged as error:
            raise Diverged(f"{error} {self._last_good()}") from error
        self.train_seconds += time.perf_counter() - start

    def evaluate(self) -> None:
        self.note(self.walk.experiment.task.evaluate(self.walk.state.params))

    def note(self, found: dict[str, float]) -> None:
        """What an evaluation of this version found."""
        walk, table = self.walk, self.walk.experiment.timetable
        if not all(isfinite(value) for value in found.values()):
            raise Diverged(
                f"{walk.described} has {found}, which is not finite: lower the local or the server "
                f"learning rate. {self._last_good()}"
            )
        self.metrics.append(
            {
                "round": walk.version,
                "virtual_s": _virtual_s(table, walk.version),
                "updates": walk.row,
                "local_steps": walk.local_steps,
                "train_seconds": round(self.train_seconds, 6),
                **found,
            }
        )
        if self.record is not None:
            self.record.append_metrics(self.metrics[-1])

    def _on_target(self) -> bool:
        target, reached = self.walk.experiment.target_accuracy, self.metrics[-1].get("accuracy")
        if target is None or reached is None or reached < target:
            return False
        self.stopped = "target"
        return True

    def _save_if_due(self) -> None:
        if self.record is None:
            return
        if self.checkpoint_every is not None:
            due = self.walk.version % self.checkpoint_every == 0
        else:
            due = time.monotonic() - self.saved_at >= CHECKPOINT_S
        if due:
            self.save()

    def save(self) -> None:
        """Write a checkpoint now, if the run is recorded."""
        if self.record is None:
            return
        arrays, numbers = self.walk.pack()
        numbers |= {"metrics": self.metrics, "train_seconds": self.train_seconds}
        self.record.save_checkpoint(arrays, numbers)
        self.saved_at = time.monotonic()

    def _restore(self) -> None:
        saved = self.record.load_checkpoint() if self.record is not None else None
        if saved is not None:
            arrays, numbers = saved
            self.walk.unpack(arrays, numbers)
            self.metrics, self.train_seconds = numbers["metrics"], numbers["train_seconds"]
        if self.record is not None:
            self.record.start_metrics(self.metrics)

    def _last_good(self) -> str:
        if self.record is None or not self.record.checkpoint.exists():
            return "There is no checkpoint to go back to."
        return f"The last good checkpoint is {self.record.checkpoint}."


def _virtual_s(table: Timetable, version: int) -> float | None:
    if table.version_s is None:
        return None
    return float(table.version_s[version - 1]) if version else 0.0


def _settings_of(recorded: str | Path | None) -> Settings:
    if recorded is None:
        return Settings()
    return Settings.from_record(RunDirectory(Path(recorded)).settings())


def open_record(experiment: Experiment, path: Path, resume: bool) -> RunDirectory:
    """A new directory for the run, or with ``resume`` its own."""
    settings = {**experiment.about, "fingerprint": experiment.fingerprint(), "format": FORMAT}
    if resume:
        return RunDirectory.reopen(path, settings, experiment.timetable)
    return RunDirectory.create(path, settings, experiment.timetable)


def finished(experiment: Experiment, record: RunDirectory) -> Run:
    """A run that was recorded to its end."""
    params = record.model(experiment.task.layout)
    return Run(params, record.metrics(), record.summary())


def _summary(journey: Journey) -> dict[str, Any]:
    last, seconds = journey.metrics[-1], journey.train_seconds
    accuracies = [a for row in journey.metrics if (a := row.get("accuracy")) is not None]
    steps = int(last["local_steps"] or 0)
    experiment = journey.walk.experiment
    return {
        "final_accuracy": last.get("accuracy"),
        "last10_accuracy": float(np.mean(accuracies[-10:])) if accuracies else None,
        "best_accuracy": max(accuracies) if accuracies else None,
        "final_loss": last.get("loss"),
        "rounds": journey.walk.version,
        "updates": journey.walk.row,
        "local_steps": steps,
        "virtual_s": last["virtual_s"],
        "stopped_at": journey.stopped,
        "train_seconds": round(seconds, 4),
        "local_steps_per_second": round(steps / seconds, 1) if seconds else None,
        "updates_per_second": round(journey.walk.row / seconds, 1) if seconds else None,
        "peak_rss_mb": _peak_rss_mb(),
        "seed": experiment.about.get("seed", experiment.seed),  # as it was asked for
        "software": software(),
    }


def _peak_rss_mb() -> float | None:
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 2**20 if sys.platform == "darwin" else peak / 2**10, 1)


def software() -> dict[str, str]:
    """The versions that a result depends on; torch's where it is in use."""
    from anarchic import __version__

    found = {"anarchic": __version__, "python": platform.python_version(), "numpy": np.__version__}
    if "torch" in sys.modules:
        found["torch"] = str(sys.modules["torch"].__version__)
    return found
