"""What was measured for each worker: in memory, and in ``per_worker.csv`` of a run directory."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anarchic.core.files import write_file
from anarchic.core.reading import read_file, reason
from anarchic.core.types import Floats, Integers
from anarchic.errors import RunError

MOST = 1 << 30  # bytes of the file
Measured = Sequence[tuple[int, Floats]]  # (round, values of all workers)


@dataclass(frozen=True, eq=False)
class PerWorker:
    """Accuracy or loss of every worker on the samples that it set aside, at each evaluation."""

    measure: str  # accuracy or loss
    rounds: Integers  # (evaluations,)
    values: Floats  # (evaluations, workers); NaN where a worker set nothing aside

    @staticmethod
    def of(measure: str, rows: Measured) -> PerWorker | None:
        if not rows:
            return None
        rounds = np.array([number for number, _ in rows], np.int64)
        return PerWorker(measure, rounds, np.stack([values for _, values in rows]))

    def __repr__(self) -> str:
        evaluations, workers = self.values.shape
        return f"PerWorker({self.measure} of {workers} workers, {evaluations} evaluations)"


def start(path: Path, measure: str, rows: Measured) -> None:
    """Begin the file with the rows so far; without any there is no file."""
    path.unlink(missing_ok=True)
    if rows:
        lines = [f"round,worker,{measure}\n", *(_lines(*row) for row in rows)]
        write_file(path, "".join(lines).encode())


def append(path: Path, measure: str, number: int, values: Floats) -> None:
    """Add what was measured at one evaluation."""
    with open(path, "a", encoding="utf-8", newline="") as file:
        if file.tell() == 0:
            file.write(f"round,worker,{measure}\n")
        file.write(_lines(number, values))


def read(path: Path) -> PerWorker | None:
    """The table, if there is one; an evaluation that was cut off is left out."""
    if not path.exists():
        return None
    try:
        text = str(read_file(path, most=MOST), "utf-8")
        header, *lines = csv.reader(io.StringIO(text, newline=""))
        found: dict[int, list[float]] = {}
        for line in lines:
            if len(line) == 3:
                found.setdefault(int(line[0]), []).append(float(line[2] or "nan"))
        workers = max(map(len, found.values()))
        rows = [(n, np.array(values)) for n, values in found.items() if len(values) == workers]
        return PerWorker.of(header[2], rows)
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise RunError(f"{path} cannot be read: {reason(error)}.") from error


def _lines(number: int, values: Floats) -> str:
    texts = ("" if np.isnan(value) else repr(value) for value in values.tolist())
    return "".join(f"{number},{worker},{text}\n" for worker, text in enumerate(texts))
