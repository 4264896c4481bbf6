"""What was measured for each worker: in memory, and in ``per_worker.csv`` of a run directory."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from contextlib import suppress
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
    names: tuple[str, ...] = ()  # of the workers; none where they have only numbers

    @staticmethod
    def of(measure: str, rows: Measured, names: Sequence[str] = ()) -> PerWorker | None:
        if not rows:
            return None
        rounds = np.array([number for number, _ in rows], np.int64)
        return PerWorker(measure, rounds, np.stack([each for _, each in rows]), tuple(names))

    @property
    def at_end(self) -> dict[str | int, float]:
        """The values of the last evaluation, by the names of the workers or their numbers."""
        last = self.values[-1].tolist()
        return dict(zip(self.names or range(len(last)), last, strict=True))

    def __repr__(self) -> str:
        evaluations, workers = self.values.shape
        return f"PerWorker({self.measure} of {workers} workers, {evaluations} evaluations)"


def start(path: Path, measure: str, rows: Measured, names: Sequence[str]) -> None:
    """Begin the file with the rows so far; without any there is no file."""
    path.unlink(missing_ok=True)
    if rows:
        lines = [_header(measure, names), *(_lines(*row, names) for row in rows)]
        write_file(path, "".join(lines).encode())


def append(path: Path, measure: str, number: int, values: Floats, names: Sequence[str]) -> None:
    """Add what was measured at one evaluation."""
    with open(path, "a", encoding="utf-8", newline="") as file:
        if file.tell() == 0:
            file.write(_header(measure, names))
        file.write(_lines(number, values, names))


def read(path: Path) -> PerWorker | None:
    """The table, if there is one; an evaluation that was cut off is left out."""
    if not path.exists():
        return None
    try:
        text = str(read_file(path, most=MOST), "utf-8")
        header, *lines = csv.reader(io.StringIO(text, newline=""))
        found: dict[int, list[float]] = {}
        names: dict[int, str] = {}
        for line in lines:
            if len(line) == len(header):
                found.setdefault(int(line[0]), []).append(float(line[-1] or "nan"))
                names[int(line[1])] = line[2]
        workers = max(map(len, found.values()))
        rows = [(n, np.array(values)) for n, values in found.items() if len(values) == workers]
        return PerWorker.of(header[-1], rows, list(names.values()) if len(header) > 3 else ())
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise RunError(f"{path} cannot be read: {reason(error)}.") from error


def names(path: Path) -> tuple[str, ...]:
    """Those of the workers, if the file has any; it may be written to at the time."""
    found: list[str] = []
    with suppress(OSError, ValueError, csv.Error), open(path, encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        if "name" in next(lines, []):
            for number, worker, name, _ in lines:
                if number != "0" or int(worker) != len(found):
                    break
                found.append(name)
    return tuple(found)


def _header(measure: str, names: Sequence[str]) -> str:
    return f"round,worker,{'name,' if names else ''}{measure}\n"


def _lines(number: int, values: Floats, names: Sequence[str]) -> str:
    texts = ("" if np.isnan(value) else repr(value) for value in values.tolist())
    lines = (
        (number, worker, *names[worker : worker + 1], text) for worker, text in enumerate(texts)
    )
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()
