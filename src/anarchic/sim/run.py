"""A run: while it is under way, what a watcher hears of it, and what it ends with."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from numbers import Real
from typing import Any, cast

from anarchic.callbacks.callback import RunInfo, VersionInfo, tell
from anarchic.core.arrays import on_host
from anarchic.core.reading import reason
from anarchic.core.saving import Numbers
from anarchic.core.types import Floats
from anarchic.errors import Diverged, RunError, Stop
from anarchic.participation.timetable import Timetable
from anarchic.sim.engine import Engine
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import MetricsRow, RunDirectory
from anarchic.sim.result import Run as Run
from anarchic.sim.settings import Settings
from anarchic.sim.summary import summary_of
from anarchic.sim.worker_table import PerWorker
from anarchic.train.per_worker import spread
from anarchic.train.task import JudgedTask, OwnBuffersTask, Task

LOGGER = logging.getLogger("anarchic.train")
CHECKPOINT_S = 60.0  # without a number of rounds, a checkpoint is written this often


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every round."""

    round: int
    rounds: int
    updates: int
    latest: MetricsRow  # of the last evaluation


Watcher = Callable[[Progress], None]


@dataclass
class ActiveRun:
    """A run that is under way: keeps its metrics, its checkpoints and its record."""

    engine: Engine
    record: RunDirectory | None
    checkpoint_every: int | None  # rounds; None: by the clock
    watch: Watcher
    callbacks: Sequence[Any] = ()
    name: str = "run"
    metrics: list[MetricsRow] = field(default_factory=list)
    workers: list[tuple[int, Floats]] = field(default_factory=list)  # at each evaluation
    train_seconds: float = 0.0
    saved_at: float = field(default_factory=time.monotonic)
    diverged: bool = False
    reason: str = ""  # why it diverged
    stopped: Stop | None = None  # by a callback or the watcher
    measure: str = ""  # of the workers
    _evaluated: frozenset[int] = frozenset()
    _open_until: int = 0
    _told_whole: bool = False

    def __post_init__(self) -> None:
        self._judges = self.engine.experiment.judges()

    def begin(self) -> None:
        """Start from the first version, or from the last checkpoint."""
        experiment = self.engine.experiment
        self._evaluated, self._open_until = experiment.evaluated, experiment.open_until
        if self.engine.own_buffers is not None:
            _say_own_buffers()
        self._restore()
        if self.callbacks:
            directory = None if self.record is None else self.record.path
            facts = dict(experiment.about), experiment.task.layout, directory
            rounds, rows = experiment.timetable.rounds, tuple(self.metrics)
            self._about = RunInfo(self.name, *facts, rounds=rounds, metrics=rows)
            self._tell("begin", self._about)
        if not self.metrics:
            self.evaluate()

    def _tell(self, event: str, about: object) -> None:
        self.stopped = tell(self.callbacks, event, about) or self.stopped

    def _version(self, metrics: MetricsRow) -> VersionInfo:
        params = self.engine.state.params  # of this version: no step changes them
        return VersionInfo(
            self._about, self.engine.version, metrics, lambda: on_host(params).copy()
        )

    def stepped(self) -> None:
        """Tell the callbacks that there is a new version."""
        if self.callbacks:
            self._tell("version", self._version({}))

    @property
    def more(self) -> bool:
        """Whether there are rounds to train."""
        return self._stopped_at is None

    @property
    def due(self) -> bool:
        """Whether this version is one to evaluate."""
        return self.engine.version in self._evaluated

    def after_round(self) -> None:
        """Write a checkpoint if one is due, and tell the watcher."""
        engine, rounds = self.engine, self.engine.experiment.timetable.rounds
        if self.checkpoint_every is not None:
            due = engine.version % self.checkpoint_every == 0
        else:
            due = time.monotonic() - self.saved_at >= CHECKPOINT_S
        if self._due_here(due):
            self.save()
        try:
            self.watch(Progress(engine.version, rounds, engine.row, self.metrics[-1]))
        except Stop as stop:
            self.stopped = stop

    def _due_here(self, due: bool) -> bool:
        """The last checkpoint is one that a longer run can go on from."""
        last = self._open_until
        if self.engine.version != last or self.record is None:
            return due and self.engine.version < last
        return due or self.checkpoint_every is not None or self.record.checkpoint.exists()

    def finish(self) -> Run:
        """Evaluate the last version on all test samples, and record model and summary."""
        stopped_at = self._stopped_at
        if not self.diverged:
            self._evaluate_last()
        summary = summary_of(self, stopped_at)
        params, layout = on_host(self.engine.state.params), self.engine.experiment.task.layout
        if self.record is not None:
            self.record.finish(layout, params, summary, self.engine.version)
        self._tell("end", summary)
        return Run(
            params,
            self.metrics,
            summary,
            layout,
            PerWorker.of(self.measure, self.workers, self._names),
        )

    def _evaluate_last(self) -> None:
        whole = self._judges[1]
        if self.metrics[-1]["round"] == self.engine.version:
            if self.judge is whole or self._told_whole:
                return
            self.metrics.pop()  # it was evaluated on some of the test samples
            self.workers = [each for each in self.workers if each[0] != self.engine.version]
            self._rewrite()
        self._told_whole = True
        self.evaluate()

    @property
    def judge(self) -> Task:
        """The task as it evaluates this version."""
        at_end = self._told_whole or self.engine.version in self.engine.experiment.at_end
        return self._judges[at_end]

    @property
    def judged_alike(self) -> bool:
        """Whether other runs of the same group evaluate just as this one does."""
        return self.judge is self.engine.experiment.task and not getattr(self.judge, "metrics", {})

    def evaluate(self) -> None:
        """Evaluate this version now, whether it is due or not."""
        try:
            self.note(self.judge.evaluate(self.engine.state.params))
        except Diverged as error:
            raise Diverged(f"{error} {self.last_checkpoint}") from error

    def note(self, found: dict[str, float]) -> None:
        """Record what an evaluation of this version found."""
        engine, table = self.engine, self.engine.experiment.timetable
        own = getattr(self.judge, "metrics", {})  # that may be undefined: of a class not seen
        plain = [value for n, value in found.items() if n.removeprefix("val_") not in own]
        if not all(map(isfinite, plain)):
            raise Diverged(
                f"{engine.described} has {found}, which is not finite: lower the local or the "
                "server learning rate."
            )
        found = {**found, **self._of_workers()}
        self.metrics.append(
            {
                "round": engine.version,
                "virtual_s": _virtual_s(table, engine.version),
                "updates": engine.row,
                "local_steps": engine.local_steps,
                **_in_vain(table, engine.version),
                "train_seconds": round(self.train_seconds, 6),
                **self._test_samples(),
                **{name: value if isfinite(value) else None for name, value in found.items()},
            }
        )
        if self.record is not None:
            self.record.append_metrics(self.metrics[-1])
        if self.callbacks:
            self._tell("evaluation", self._version(self.metrics[-1]))

    def _test_samples(self) -> MetricsRow:
        """On how many the model was evaluated, where that changes."""
        if self._judges[0] is self._judges[1] or not isinstance(self.judge, JudgedTask):
            return {}
        return {"test_samples": self.judge.test_samples}

    @property
    def _names(self) -> tuple[str, ...]:
        """Those of the workers, where the task knows them."""
        found: tuple[str, ...] = getattr(self.engine.experiment.task, "worker_names", ())
        return found

    def _of_workers(self) -> dict[str, float]:
        """Evaluate the model for each worker, if workers set samples aside.

        That takes as long as an evaluation on all test samples, so where only some of them are to
        be used it is done at the end alone.
        """
        task, found = self.engine.experiment.task, None
        if isinstance(task, JudgedTask) and self.judge is self._judges[1]:
            params, own = self.engine.state.params, self.engine.own_buffers
            if own is None:
                found = task.evaluate_workers(params)
            else:
                found = cast(OwnBuffersTask, task).evaluate_workers(params, own)
        if found is None:
            return {}
        self.measure, values = found
        self.workers.append((self.engine.version, values))
        if self.record is not None:
            self.record.append_workers(self.engine.version, *found, self._names)
        return spread(*found)

    @property
    def _stopped_at(self) -> str | None:
        """Why there are no more rounds; None while there are."""
        if self.diverged:
            return "diverged"
        if self.stopped is not None:
            return "stopped"
        experiment, last = self.engine.experiment, self.metrics[-1]
        reached = last.get("val_accuracy", last.get("accuracy"))  # test samples choose nothing
        if self.engine.version >= experiment.timetable.rounds:
            return _end(experiment)
        target = experiment.target_accuracy
        return None if target is None or reached is None or reached < target else "target"

    def save(self) -> None:
        """Write a checkpoint now, if the run is recorded."""
        if self.record is None:
            return
        arrays, numbers = self.engine.pack()
        numbers |= {"metrics": self.metrics, "train_seconds": self.train_seconds}
        self.record.save_checkpoint(arrays, numbers)
        self.saved_at = time.monotonic()

    def _restore(self) -> None:
        if self.record is None:
            return
        if saved := self.record.load_checkpoint():
            try:
                self.engine.unpack(*saved)
                self.metrics, self.train_seconds = _told(saved[1])
                if saved[1]["run"] != self.record.settings()["fingerprint"]:
                    # Of a run that was to end earlier, and was evaluated before its end.
                    self.metrics = [row for row in self.metrics if row["round"] in self._evaluated]
            except (KeyError, TypeError, ValueError, IndexError, AttributeError, RunError) as error:
                raise RunError(
                    f"{self.record.checkpoint} does not fit this run ({reason(error)}): put a "
                    "whole one back, or remove it to begin again."
                ) from error
        table = self.record.per_worker()
        if table is not None:
            self.measure, rounds = table.measure, {row["round"] for row in self.metrics}
            pairs = zip(table.rounds.tolist(), table.values, strict=True)
            self.workers = [pair for pair in pairs if pair[0] in rounds]
        self._rewrite()

    def _rewrite(self) -> None:
        """Write what was evaluated so far, and nothing else."""
        if self.record is not None:
            self.record.start_metrics(self.metrics)
            self.record.start_workers(self.measure, self.workers, self._names)

    @property
    def last_checkpoint(self) -> str:
        """Where to go back to, in a sentence."""
        if self.record is None or not self.record.checkpoint.exists():
            return "There is no checkpoint to go back to."
        return f"The last good checkpoint is {self.record.checkpoint}."


@cache
def _say_own_buffers() -> None:
    """One line, however many runs there are."""
    LOGGER.warning(
        "With buffers='local', accuracy and loss on common test data are those of the server's "
        "model with the mean of the workers' buffers, which no worker has: per_worker=True "
        "evaluates each worker with its own (workers_mean)."
    )


def _told(numbers: Numbers) -> tuple[list[MetricsRow], float]:
    """The metrics and the time so far, from a checkpoint."""
    rows, seconds = numbers["metrics"], numbers["train_seconds"]
    values = [value for row in rows for value in row.values()]
    if not isinstance(rows, list) or not all(v is None or isinstance(v, Real) for v in values):
        raise ValueError("its metrics are not rows of numbers")
    return rows, float(seconds)


def _end(experiment: Experiment) -> str:
    """The setting that ended the timetable: until_s, or rounds where it has as many as asked."""
    about, rounds = experiment.about, experiment.timetable.rounds
    bound = about.get("rounds") == rounds != Settings.rounds  # its default is none beside until_s
    return "rounds" if about.get("until_s") is None or bound else "until_s"


def _virtual_s(table: Timetable, version: int) -> float | None:
    if table.version_s is None:
        return None
    return float(table.version_s[version - 1]) if version else 0.0


def _in_vain(table: Timetable, version: int) -> MetricsRow:
    """Refused updates and local steps for nothing, until a version, where arrivals were coupled."""
    if table.wasted is None:
        return {}
    total = table.wasted.block(0, version).total
    return {"refused": total["refused"], "steps_in_vain": total["local_steps"]}
