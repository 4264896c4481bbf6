"""Reading recorded runs, finished or not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anarchic.sim.record import MetricsRow, RunDirectory


@dataclass(frozen=True)
class RecordedRun:
    """The contents of a run directory; ``summary`` is None until the run has finished."""

    name: str
    settings: dict[str, Any]
    metrics: list[MetricsRow]
    summary: dict[str, Any] | None

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
    return RecordedRun(name or path.resolve().name, settings, metrics, summary)


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
