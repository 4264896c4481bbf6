"""A run: while it is under way, what a watcher hears of it, and what it ends with."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from anarchic.core.arrays import on_host
from anarchic.core.guard import guard_of
from anarchic.core.reading import reason
from anarchic.core.saving import Numbers
from anarchic.core.types import Vector
from anarchic.errors import Diverged, RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.engine import Engine
from anarchic.sim.record import MetricsRow, RunDirectory

CHECKPOINT_S = 60.0  # without a number of rounds, a checkpoint is written this often


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every round."""

    round: int
    rounds: int
    updates: int
    latest: MetricsRow  # of the last evaluation


Watcher = Callable[[Progress], None]


@dataclass(frozen=True)
class Run:
    """A finished run: the last model, a row of metrics for each evaluation, and the summary."""

    params: Vector
    metrics: list[MetricsRow]
    summary: dict[str, Any]

    @property
    def accuracy(self) -> float | None:
        """At the end."""
        value: float | None = self.summary["final_accuracy"]
        return value


@dataclass
class ActiveRun:
    """A run that is under way: keeps its metrics, its checkpoints and its record."""

    engine: Engine
    record: RunDirectory | None
    checkpoint_every: int | None  # rounds; None: by the clock
    watch: Watcher
    metrics: list[MetricsRow] = field(default_factory=list)
    train_seconds: float = 0.0
    saved_at: float = field(default_factory=time.monotonic)
    diverged: bool = False
    _evaluated: frozenset[int] = frozenset()

    def begin(self) -> None:
        """Start from the first version, or from the last checkpoint."""
        self._evaluated = self.engine.experiment.evaluated
        self._restore()
        if not self.metrics:
            self.evaluate()

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
        if due:
            self.save()
        self.watch(Progress(engine.version, rounds, engine.row, self.metrics[-1]))

    def finish(self) -> Run:
        """Evaluate the last version, and record model and summary."""
        stopped_at = self._stopped_at
        if not self.diverged and self.metrics[-1]["round"] != self.engine.version:
            self.evaluate()
        summary = _summary(self, stopped_at)
        params, layout = on_host(self.engine.state.params), self.engine.experiment.task.layout
        if self.record is not None:
            self.record.finish(layout, params, summary, self.engine.version)
        return Run(params, self.metrics, summary)

    def evaluate(self) -> None:
        """Evaluate this version now, whether it is due or not."""
        try:
            self.note(self.engine.experiment.task.evaluate(self.engine.state.params))
        except Diverged as error:
            raise Diverged(f"{error} {self.last_checkpoint}") from error

    def note(self, found: dict[str, float]) -> None:
        """Record what an evaluation of this version found."""
        engine, table = self.engine, self.engine.experiment.timetable
        if not all(isfinite(value) for value in found.values()):
            raise Diverged(
                f"{engine.described} has {found}, which is not finite: lower the local or the "
                "server learning rate."
            )
        self.metrics.append(
            {
                "round": engine.version,
                "virtual_s": _virtual_s(table, engine.version),
                "updates": engine.row,
                "local_steps": engine.local_steps,
                "train_seconds": round(self.train_seconds, 6),
                **found,
            }
        )
        if self.record is not None:
            self.record.append_metrics(self.metrics[-1])

    @property
    def _stopped_at(self) -> str | None:
        """Why there are no more rounds; None while there are."""
        if self.diverged:
            return "diverged"
        experiment, reached = self.engine.experiment, self.metrics[-1].get("accuracy")
        if self.engine.version >= experiment.timetable.rounds:
            return "rounds"
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
            except (KeyError, TypeError, ValueError, IndexError, AttributeError, RunError) as error:
                raise RunError(
                    f"{self.record.checkpoint} does not fit this run ({reason(error)}): put a "
                    "whole one back, or remove it to begin again."
                ) from error
        self.record.start_metrics(self.metrics)

    @property
    def last_checkpoint(self) -> str:
        """Where to go back to, in a sentence."""
        if self.record is None or not self.record.checkpoint.exists():
            return "There is no checkpoint to go back to."
        return f"The last good checkpoint is {self.record.checkpoint}."


def _told(numbers: Numbers) -> tuple[list[MetricsRow], float]:
    """The metrics and the time so far, from a checkpoint."""
    rows, seconds = numbers["metrics"], numbers["train_seconds"]
    values = [value for row in rows for value in row.values()]
    if not isinstance(rows, list) or not all(v is None or isinstance(v, Real) for v in values):
        raise ValueError("its metrics are not rows of numbers")
    return rows, float(seconds)


def _virtual_s(table: Timetable, version: int) -> float | None:
    if table.version_s is None:
        return None
    return float(table.version_s[version - 1]) if version else 0.0


def _summary(run: ActiveRun, stopped_at: str | None) -> dict[str, Any]:
    last, seconds = run.metrics[-1], run.train_seconds
    accuracies = [a for row in run.metrics if (a := row.get("accuracy")) is not None]
    steps = int(last["local_steps"] or 0)
    experiment = run.engine.experiment
    return {
        "final_accuracy": last.get("accuracy"),
        "last10_accuracy": float(np.mean(accuracies[-10:])) if accuracies else None,
        "best_accuracy": max(accuracies) if accuracies else None,
        "final_loss": last.get("loss"),
        "rounds": run.engine.version,
        "updates": run.engine.row,
        "local_steps": steps,
        "virtual_s": last["virtual_s"],
        "stopped_at": stopped_at,
        "train_seconds": round(seconds, 4),
        "local_steps_per_second": round(steps / seconds, 1) if seconds else None,
        "updates_per_second": round(run.engine.row / seconds, 1) if seconds else None,
        "peak_rss_mb": _peak_rss_mb(),
        **_clipping(run.engine.state),
        "seed": experiment.about.get("seed", experiment.seed),  # as it was asked for
        "software": software(),
    }


def _clipping(state: Any) -> dict[str, float]:
    """How many updates the guard has clipped, and the most that a length was of the scale."""
    guard = guard_of(state)
    return {} if guard is None else {"clipped": guard.clipped, "farthest": guard.farthest}


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
