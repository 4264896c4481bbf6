"""Raw results: one small JSON file for each cell and seed, kept with the experiment.

``TASK/CELL.seedS.json`` holds the settings, the numbers, a thinned curve, and what it was computed
with. Tables, pages and pictures are made of these files and of nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anarchic.errors import RunError
from anarchic.sim.run import software
from anarchic.study.cell import Cell, Job
from anarchic.study.machine import hardware

if TYPE_CHECKING:
    from anarchic.sim.record import MetricsRow
    from anarchic.sim.run import Run

Curve = Mapping[str, Sequence[float | None]]
POINTS = 120  # of a curve, besides its last ten
DIGITS = 5  # significant ones of a point of a curve


@dataclass(frozen=True)
class Result:
    """What one cell gave with one seed."""

    task: str
    cell: str
    seed: int
    numbers: Mapping[str, Any]
    settings: Mapping[str, Any]
    curve: Curve = field(default_factory=dict)
    stopped_at: str | None = None
    seconds: float | None = None  # of training
    share_s: float | None = None  # of the time on the clock of the runs computed with it
    precision: str = "ieee"
    hardware: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    @property
    def path(self) -> Path:
        """Its place in a folder of results."""
        return place(self.task, self.cell, self.seed)

    @property
    def diverged(self) -> bool:
        """Whether its run ended early, in numbers that are not finite."""
        return self.stopped_at == "diverged"

    @property
    def versions(self) -> str:
        """Of the software, in a line."""
        return ", ".join(f"{name} {version}" for name, version in self.software.items())

    def write(self, folder: Path) -> Path:
        path = folder / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".part")
        beside.write_text(_lines(asdict(self)), encoding="utf-8")
        os.replace(beside, path)
        return path

    @staticmethod
    def read(path: Path) -> Result:
        try:
            return Result(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path} is not a result: {error}. Remove it and run again.") from error


def place(task: str, cell: str, seed: int) -> Path:
    return Path(task) / f"{cell}.seed{seed}.json"


def read_cell(folder: Path, cell: Cell) -> list[Result]:
    """The results of a cell by seed; those that were recorded with other settings are left out."""
    paths = (folder / cell.task).glob(f"{cell.name}.seed*.json")
    found = [Result.read(path) for path in paths]
    return sorted((r for r in found if cell.answered_by(r.settings)), key=lambda r: r.seed)


def result_of(
    job: Job,
    numbers: Mapping[str, Any],
    *,
    stopped_at: str | None = None,
    seconds: float | None = None,
    share_s: float | None = None,
) -> Result:
    """A result made here and now; ``numbers`` may hold a ``curve``, which is kept thinned."""
    numbers = dict(numbers)
    curve = numbers.pop("curve", {})
    return Result(
        task=job.cell.task,
        cell=job.cell.name,
        seed=job.seed,
        numbers={name: _plain(value) for name, value in numbers.items()},
        settings=job.cell.asked,
        curve=thin(curve),
        stopped_at=stopped_at,
        seconds=None if seconds is None else round(seconds, 2),
        share_s=None if share_s is None else round(share_s, 2),
        precision=job.precision,
        hardware=hardware(job.device),
        software=software(),
        date=datetime.now(UTC).date().isoformat(),
    )


def accuracies(run: Run) -> dict[str, Any]:
    """What is kept of a trained run: accuracy at the end by several measures, and its curve.

    ``last10`` is the mean of the last ten evaluations; ``last50`` and ``last50_spread`` are mean
    and standard deviation of the evaluations in the last fifty rounds.
    """
    rows = [row for row in run.metrics if row.get("accuracy") is not None]
    rounds = int(run.metrics[-1]["round"] or 0) if run.metrics else 0
    every = [float(row["accuracy"] or 0) for row in rows]
    late = [a for row, a in zip(rows, every, strict=True) if (row["round"] or 0) > rounds - 50]
    return {
        "final": every[-1] if every else None,
        "last10": float(np.mean(every[-10:])) if every else None,
        "best": max(every, default=None),
        "last50": float(np.mean(late)) if late else None,
        "last50_spread": float(np.std(late)) if late else None,
        "rounds": rounds,
        "virtual_s": run.metrics[-1].get("virtual_s") if run.metrics else None,
        "curve": curve_of(run.metrics),
    }


def curve_of(metrics: Sequence[MetricsRow]) -> dict[str, list[float | None]]:
    """Accuracy and loss by round, and by virtual time where there is a clock."""
    names = ("round", "virtual_s", "accuracy", "loss")
    kept = [n for n in names if any(row.get(n) is not None for row in metrics)]
    return {name: [row.get(name) for row in metrics] for name in kept}


def thin(curve: Curve) -> dict[str, list[float | None]]:
    """At most ``POINTS`` points of it, evenly, and the last ten."""
    length = max((len(values) for values in curve.values()), default=0)
    step = -(-max(0, length - 10) // POINTS) or 1
    kept = sorted({*range(0, length, step), *range(max(0, length - 10), length)})
    return {name: [_short(values[i]) for i in kept] for name, values in curve.items()}


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(value) if float(value).is_integer() else short


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, floats to seven digits."""
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _lines(record: Mapping[str, Any]) -> str:
    """JSON with a line a field and a line a column of the curve: readable, and small."""
    lines = []
    for name, value in record.items():
        if name == "curve":
            inner = ",\n".join(f'    "{n}": {json.dumps(v)}' for n, v in value.items())
            text = f"{{\n{inner}\n  }}" if inner else "{}"
        else:
            text = json.dumps(value)
        lines.append(f'  "{name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"
