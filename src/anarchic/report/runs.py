"""Recorded runs, finished or not: read, and compared in a table."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError
from anarchic.sim.record import MetricsRow, RunDirectory
from anarchic.sim.run import in_a_row
from anarchic.sim.worker_table import PerWorker
from anarchic.train.metrics import COLUMNS


@dataclass(frozen=True)
class RecordedRun:
    """The contents of a run directory; ``summary`` is None until the run has finished."""

    name: str
    settings: dict[str, Any]
    metrics: list[MetricsRow]
    summary: dict[str, Any] | None
    per_worker: PerWorker | None = None

    @property
    def has_clock(self) -> bool:
        """Whether its participation runs in virtual time."""
        return any(row.get("virtual_s") is not None for row in self.metrics)


def read_run(path: str | os.PathLike[str], name: str | None = None) -> RecordedRun:
    """The run in a directory; its name is that of the directory unless ``name`` is given."""
    path = Path(path)
    record = RunDirectory(path)
    settings = record.settings()
    # A run that has just started has no evaluation yet.
    metrics = record.metrics() if (path / "metrics.csv").exists() else []
    summary = record.summary() if record.finished else None
    name = name or path.resolve().name
    return RecordedRun(name, settings, metrics, summary, record.per_worker())


def read_runs(paths: Iterable[str | os.PathLike[str]]) -> list[RecordedRun]:
    """Several runs; directories of the same name are told apart by their whole path."""
    folders = [Path(path) for path in paths]
    names = [folder.resolve().name for folder in folders]
    return [
        read_run(folder, str(folder) if names.count(name) > 1 else name)
        for folder, name in zip(folders, names, strict=True)
    ]


def first_at(metrics: Iterable[MetricsRow], accuracy: float) -> MetricsRow | None:
    """The first evaluation with at least that accuracy."""
    return next((row for row in metrics if (row.get("accuracy") or 0.0) >= accuracy), None)


@dataclass(frozen=True)
class TableRow:
    """One run of a comparison, as far as it got; None where there is no number yet.

    ``final`` is of the metric that is compared; ``last10`` is its mean over the last
    ten rounds, where they were all evaluated.
    """

    name: str
    rule: str
    finished: bool
    rounds: int
    final: float | None
    last10: float | None
    virtual_s: float | None
    updates: int
    local_steps_per_second: float | None


def compare_runs(runs: Sequence[RecordedRun], metric: str = "accuracy") -> list[TableRow]:
    """One row per run, from its metrics: an unfinished run has no summary."""
    return [_row(run, metric) for run in runs]


def check_metric(runs: Sequence[RecordedRun], metric: str) -> None:
    """Refuse a metric that none of the runs has."""
    known = list(dict.fromkeys(name for run in runs for row in run.metrics for name in row))
    check_choice("metric", metric, [name for name in known if name not in COLUMNS])


def _row(run: RecordedRun, metric: str) -> TableRow:
    values = [a for row in run.metrics if (a := row.get(metric)) is not None]
    last = run.metrics[-1] if run.metrics else {}
    steps, seconds = last.get("local_steps") or 0, last.get("train_seconds") or 0
    newest = values[-10:] if in_a_row(run.metrics[-10:]) else []
    return TableRow(
        run.name,
        str(run.settings.get("rule", "?")),
        run.summary is not None,
        int(last.get("round") or 0),
        values[-1] if values else None,
        sum(newest) / len(newest) if newest else None,
        last.get("virtual_s"),
        int(last.get("updates") or 0),
        steps / seconds if seconds else None,
    )


def _whole(value: float | None) -> float | None:
    """Counts are read from a file as floats; write them without a decimal point."""
    return int(value) if value is not None and float(value).is_integer() else value


def write_csv(runs: Sequence[RecordedRun], path: str | os.PathLike[str]) -> Path:
    """Write one line per evaluation of each run; the first columns are the run's name and rule."""
    path = Path(path)
    columns = list(dict.fromkeys(name for run in runs for row in run.metrics for name in row))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["run", "rule", *columns], lineterminator="\n")
            writer.writeheader()
            for run in runs:
                who = {"run": run.name, "rule": run.settings.get("rule")}
                rows = ({name: _whole(value) for name, value in row.items()} for row in run.metrics)
                writer.writerows(who | row for row in rows)
    except OSError as error:
        raise ConfigError(
            f"Cannot write {path}: {error.strerror or error}. Choose another path."
        ) from error
    return path
