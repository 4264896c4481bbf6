"""Raw results: one line of JSON per cell and seed, in ``results.jsonl`` beside the experiment.

A line holds the settings, the numbers, a thinned curve, and what the run was computed with. Lines
are sorted by task, cell and seed. Tables, pages and pictures are made of this file alone.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anarchic.core.files import locked, write_file
from anarchic.core.reading import parse_json, read_file, reason
from anarchic.core.validation import check_kinds
from anarchic.errors import ConfigError, RunError
from anarchic.kernels.chunks import threads_in_use
from anarchic.sim.summary import software
from anarchic.study.cell import Cell, Job

if TYPE_CHECKING:
    from anarchic.sim.record import MetricsRow
    from anarchic.sim.run import Run

Curve = Mapping[str, Sequence[float | None]]
Key = tuple[str, str, int]  # task, cell, seed
FILE = "results.jsonl"
IEEE = "ieee"  # float32 as it is
MAX_BYTES = 1 << 30  # of the file
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
    share_s: float | None = None  # of the wall-clock time of its batch
    precision: str = IEEE
    hardware: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    def __post_init__(self) -> None:
        check_kinds(self)

    @property
    def key(self) -> Key:
        return self.task, self.cell, self.seed

    @property
    def diverged(self) -> bool:
        """Whether its run ended early, in numbers that are not finite."""
        return self.stopped_at == "diverged"

    @property
    def versions(self) -> str:
        """The software and its versions, as one text."""
        return ", ".join(f"{name} {version}" for name, version in self.software.items())


@dataclass(frozen=True)
class Results:
    """The results in a file, by task, cell and seed."""

    by_key: Mapping[Key, Result]

    def of(self, cell: Cell) -> list[Result]:
        """The results of a cell by seed, without those that were recorded with other settings."""
        found = self._by_cell.get((cell.task, cell.name), ())
        return sorted((r for r in found if cell.answered_by(r.settings)), key=lambda r: r.seed)

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str], list[Result]]:
        found: dict[tuple[str, str], list[Result]] = {}
        for (task, cell, _), result in self.by_key.items():
            found.setdefault((task, cell), []).append(result)
        return found

    def has(self, job: Job) -> bool:
        """Whether a job is done: its cell has a result with this seed and these settings."""
        found = self.by_key.get((job.cell.task, job.cell.name, job.seed))
        return found is not None and job.cell.answered_by(found.settings)


def read_results(path: Path) -> Results:
    """The results in a file; none where there is no file."""
    return Results({key: Result(**record) for key, record in _records(path)})


def add_results(path: Path, results: Iterable[Result]) -> None:
    """Write results into a file, in place of older ones of the same cells and seeds.

    The file is replaced as a whole. Processes that write the same file wait for each other.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        lines = {key: json.dumps(record) for key, record in _records(path)}
        lines |= {result.key: json.dumps(asdict(result)) for result in results}
        text = "".join(f"{lines[key]}\n" for key in sorted(lines))
        write_file(path, text.encode())


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


def hardware(device: str) -> dict[str, Any]:
    """The GPU, or the processor and the most threads that a run could use.

    Torch has its own number of threads, compiled loops another; the larger one counts.
    """
    torch: Any = sys.modules.get("torch")  # a measurement may not have loaded it
    if device.startswith("cuda") and torch is not None:
        return {"name": torch.cuda.get_device_name(device)}
    most = max(threads_in_use(), 1 if torch is None else torch.get_num_threads())
    return {"name": _processor(), "cores": os.cpu_count(), "most_threads": most}


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


def _records(path: Path) -> Iterator[tuple[Key, dict[str, Any]]]:
    """The lines of a file, each by its key; later lines of the same key count."""
    try:
        text = str(read_file(path, most=MAX_BYTES), "utf-8")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {reason(error)}.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            record = parse_json(line)
            found = Result(**record)
        except (ValueError, TypeError, ConfigError) as error:
            raise RunError(
                f"Line {number} of {path} is not a result: {reason(error)}. Remove the line and "
                "run again."
            ) from error
        yield found.key, record


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    return int(value) if float(value).is_integer() else float(f"{value:.{DIGITS}g}")


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, floats to seven digits."""
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
