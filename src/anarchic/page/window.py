"""The newest updates of a run, as columns: what strips, histograms and the theory panel show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from anarchic.page.binning import bins, log_bins

MOST = 20_000  # updates
FAR = 10.0  # times the median norm: an outlier
MOST_OUTLIERS = 20
HEAT_ROWS, HEAT_COLUMNS = 24, 48
SPANS_S = (30, 60, 120, 300, 600, 1800, 3600, 21_600, 86_400, 604_800, 2_592_000)
SHOWN = 400  # updates that the strip's span should hold
MOST_MARKS, LEAST_MARKS = 1_920, 32  # of all rows together, and of each

COLUMNS = np.dtype(
    [
        ("worker", "i8"),
        ("start_s", "f8"),  # when the worker pulled; nan: not known
        ("end_s", "f8"),  # when the update came
        ("base", "i8"),
        ("steps", "i8"),
        ("lr", "f8"),
        ("norm", "f8"),  # of local_lr * direction; nan: not known
        ("version", "i8"),  # that it helped to make; 0: set aside
    ]
)
Rows = NDArray[Any]  # of COLUMNS


class WindowRow(NamedTuple):
    """One update: as a row of the trace tells it, or of a timetable."""

    worker: str
    start_s: float
    end_s: float
    base: int
    steps: int
    lr: float
    norm: float
    version: int


@final
class Window:
    """The newest ``MOST`` updates, in the order of folding."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.rows: Rows = np.zeros(0, COLUMNS)

    def add(self, folded: Iterable[WindowRow]) -> None:
        new = [(self._number(f.worker), *f[1:]) for f in folded]
        if new:
            self.extend(np.array(new[-self._most :], COLUMNS))

    def extend(self, rows: Rows) -> None:
        """Rows whose workers are numbers of ``names``."""
        self.rows = np.concatenate([self.rows, rows])[-self._most :]
        if len(self.names) > 2 * self._most:
            self._forget()

    def named(self, names: Sequence[str]) -> None:
        """Give all workers their names at once, by number."""
        self.names = list(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def number(self, worker: str) -> int | None:
        return self._numbers.get(worker)

    def _number(self, worker: str) -> int:
        found = self._numbers.setdefault(worker, len(self.names))
        if found == len(self.names):
            self.names.append(worker)
        return found

    def _forget(self) -> None:
        """Drop the names of workers that are no longer here: anybody may invent some."""
        kept, numbers = np.unique(self.rows["worker"], return_inverse=True)
        self.rows["worker"] = numbers
        self.named([self.names[number] for number in kept])

    def staleness(self) -> NDArray[np.int64]:
        """Of the updates that made a version."""
        made = self.rows[self.rows["version"] > 0]
        found: NDArray[np.int64] = np.maximum(made["version"] - 1 - made["base"], 0)
        return found

    def histograms(self) -> dict[str, Any]:
        """Staleness, local steps and norms."""
        if not len(self.rows):
            return {"updates": 0, "staleness": [], "steps": [], "norms": None}
        late = self.staleness()
        return {
            "updates": len(self.rows),
            "staleness": bins(late) if len(late) else [],
            "steps": bins(self.rows["steps"]),
            "norms": self._norms(),
        }

    def _norms(self) -> dict[str, Any] | None:
        known = self.rows[np.isfinite(self.rows["norm"])]
        if not len(known):
            return None
        edges, counts = log_bins(known["norm"])
        middle = float(np.median(known["norm"]))
        far = known[known["norm"] > FAR * middle] if middle > 0 else known[:0]
        return {
            "edges": edges,
            "counts": counts,
            "median": middle,
            "limit": FAR * middle,
            "outliers": len(far),
            "newest": [
                {"worker": self.names[row["worker"]], "times": _times(row["norm"], middle)}
                for row in far[-MOST_OUTLIERS:][::-1]
            ],
        }

    def last_s(self) -> float | None:
        """When the newest update came."""
        return float(self.rows["end_s"][-1]) if len(self.rows) else None

    def span(self, now_s: float) -> tuple[float, float]:
        """The stretch of time that strips show, up to now."""
        if not len(self.rows):
            return now_s - SPANS_S[0], now_s
        wanted = now_s - float(self.rows["end_s"][-min(SHOWN, len(self.rows))])
        length = next((s for s in SPANS_S if s >= wanted), wanted)
        return now_s - length, now_s

    def heat(self, span: tuple[float, float]) -> dict[str, Any]:
        """Updates of all workers: the busiest first, in groups of equal size, by time."""
        rows = self.rows[self.rows["end_s"] >= span[0]]
        sent = np.bincount(rows["worker"], minlength=1)
        present = np.flatnonzero(sent)
        present = present[np.argsort(-sent[present], kind="stable")]
        groups = min(HEAT_ROWS, len(present))
        place = np.zeros(len(sent), np.int64)
        place[present] = np.arange(len(present)) * groups // max(1, len(present))
        width = max(span[1] - span[0], 1e-9) / HEAT_COLUMNS
        column = np.clip((rows["end_s"] - span[0]) // width, 0, HEAT_COLUMNS - 1).astype(np.int64)
        cell = place[rows["worker"]] * HEAT_COLUMNS + column
        counts = np.bincount(cell, minlength=groups * HEAT_COLUMNS)
        facts = {"workers": len(present), "rows": groups, "columns": HEAT_COLUMNS}
        return {**facts, "counts": counts.tolist() if groups else []}

    def fitted(self, workers: Sequence[str], span: tuple[float, float]) -> tuple[float, float]:
        """The span, cut so that the row of each of these workers has all its marks in it."""
        most, first_s = marks_each(len(workers)), span[0]
        for worker in workers:
            ended = self._of(worker, span)["end_s"]
            if len(ended) > most:
                first_s = max(first_s, float(ended[-most]))
        return first_s, span[1]

    def marks(
        self, worker: str, span: tuple[float, float], most: int = MOST_MARKS
    ) -> list[list[float | int | None]]:
        """A worker's newest updates in a span: start, end, staleness (None: set aside), steps."""
        return [
            [
                round(float(row["start_s"]), 3) if np.isfinite(row["start_s"]) else None,
                round(float(row["end_s"]), 3),
                max(0, int(row["version"] - 1 - row["base"])) if row["version"] else None,
                int(row["steps"]),
            ]
            for row in self._of(worker, span)[-most:]
        ]

    def _of(self, worker: str, span: tuple[float, float]) -> Rows:
        number = self.number(worker)
        found: Rows = self.rows[(self.rows["worker"] == number) & (self.rows["end_s"] >= span[0])]
        return found

    def pace(self, span: tuple[float, float]) -> list[float]:
        """Updates per second in ``HEAT_COLUMNS`` equal parts of a span."""
        counts, _ = np.histogram(self.rows["end_s"], HEAT_COLUMNS, range=span)
        width = (span[1] - span[0]) / HEAT_COLUMNS
        return [round(count / width, 4) for count in counts.tolist()]


def _times(norm: float, middle: float) -> float | None:
    """How many times the median; None if that is more than a number can be."""
    with np.errstate(over="ignore"):
        found = float(norm / middle)
    return found if np.isfinite(found) else None


def marks_each(workers: int) -> int:
    """How many marks a row may have, of N."""
    return max(LEAST_MARKS, MOST_MARKS // max(1, workers))
