"""Recorded runs, finished or not: read, and compared in a table."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anarchic.core.files import spare_store
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError
from anarchic.sim.record import MetricsRow, RunDirectory
from anarchic.sim.summary import in_a_row
from anarchic.sim.worker_table import PerWorker
from anarchic.train.metrics import COLUMNS

IN_VAIN = ("refused", "steps_in_vain")  # columns that are no metrics either


@dataclass(frozen=True)
class RecordedRun:
    """The contents of a run directory or of a server's store.

    ``summary`` is None until the run has finished, or was ended by an operator. ``end`` is where a
    live run stands, which may have been evaluated long before, or never.
    """

    name: str
    settings: dict[str, Any]
    metrics: list[MetricsRow]
    summary: dict[str, Any] | None
    per_worker: PerWorker | None = None
    end: MetricsRow | None = None

    @property
    def has_clock(self) -> bool:
        """Whether its participation runs in virtual time, or it was live."""
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


def read_store(where: str | os.PathLike[str], name: str | None = None) -> RecordedRun:
    """The run in a server's store: its evaluations are the metrics, wall time is its time."""
    from anarchic.server.history import history, store_name
    from anarchic.server.store import open_store

    with closing(open_store(str(where), create=False)) as store:
        found = history(store)
    summary: dict[str, Any] | None = {} if found.ended else None
    name = name or store_name(where)
    return RecordedRun(name, asdict(found.rules), found.rows, summary, end=found.end)


def read_runs(places: Iterable[str | os.PathLike[str]]) -> list[RecordedRun]:
    """Several runs, in directories or stores; of the same name are told apart by their path."""
    found = [(place, in_store(place)) for place in places]
    names = [_name(*each) for each in found]
    runs = []
    for (place, is_store), name in zip(found, names, strict=True):
        shown = str(place) if names.count(name) > 1 and "://" not in str(place) else name
        runs.append(read_store(place, shown) if is_store else read_run(place, shown))
    return runs


def in_store(place: str | os.PathLike[str]) -> bool:
    """A file or an address; told here, since the server's packages may be missing."""
    return "://" in str(place) or Path(place).is_file()


def _name(place: str | os.PathLike[str], is_store: bool) -> str:
    if not is_store:
        return Path(place).resolve().name
    from anarchic.server.history import store_name

    return store_name(place)


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


def without_accuracy(runs: Sequence[RecordedRun]) -> str:
    """Which runs have no accuracy, and what they have; nothing where there are none."""
    found: dict[str, None] = {}
    names = []
    for run in runs:
        known = {n: None for row in run.metrics for n, value in row.items() if value is not None}
        metrics = dict.fromkeys(n for n in known if n not in (*COLUMNS, *IN_VAIN))
        if metrics and "accuracy" not in metrics:
            names.append(run.name)
            found |= metrics
    return f"Without accuracy: {', '.join(names)}. There are {', '.join(found)}" if names else ""


def _row(run: RecordedRun, metric: str) -> TableRow:
    values = [a for row in run.metrics if (a := row.get(metric)) is not None]
    last = run.end or (run.metrics[-1] if run.metrics else {})
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
    rows = []
    for run in runs:
        who = {"run": run.name, "rule": run.settings.get("rule")}
        rows += [who | {name: _whole(value) for name, value in row.items()} for row in run.metrics]
    return write_rows(rows, path)


def write_rows(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Write rows as CSV; one that lacks a column leaves its place empty."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        spare_store(path)
        with open(path, "w", newline="", encoding="utf-8") as file:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise ConfigError(
            f"Cannot write {path}: {error.strerror or error}. Choose another path."
        ) from error
    return path
