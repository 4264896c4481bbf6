"""The results of an experiment, a line for each cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.errors import ConfigError
from anarchic.study.cell import Cell
from anarchic.study.results import Result, read_cell


@dataclass(frozen=True)
class Line:
    """A cell with its results, one a seed; there may be none yet."""

    cell: Cell
    results: Sequence[Result] = ()

    @property
    def ours(self) -> float | None:
        """The cell's value, mean over the seeds."""
        return self.mean(self.cell.value)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the value over the seeds; None for fewer than two."""
        values = self.values(self.cell.value)
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        ours, paper = self.ours, self.cell.paper
        return None if ours is None or paper is None else ours - paper

    @property
    def lost(self) -> list[Result]:
        """Those of its runs that diverged."""
        return [result for result in self.results if result.diverged]

    @property
    def ended(self) -> list[Result]:
        """Those that went to their end."""
        return [result for result in self.results if not result.diverged]

    def values(self, name: str) -> list[float]:
        """A number by seed, where it was found."""
        found = (result.numbers.get(name) for result in self.results)
        return [float(value) for value in found if value is not None]

    def mean(self, name: str) -> float | None:
        values = self.values(name)
        return float(np.mean(values)) if values else None

    def get(self, column: str) -> Any:
        """A column of the table's row, or the task."""
        return self.cell.task if column == "task" else self.cell.columns.get(column)


@dataclass(frozen=True)
class Findings:
    """All lines of an experiment, or those that were selected."""

    lines: Sequence[Line]

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, keep: Callable[[Line], bool] | None = None, **columns: Any) -> Findings:
        """The lines with these values in their columns (``task`` is one), and which ``keep``s.

        A tuple of values stands for any of them: ``where(task="lr", p=(2, 5, 10))``.
        """
        wanted = {n: v if isinstance(v, tuple) else (v,) for n, v in columns.items()}
        return Findings(
            [
                line
                for line in self.lines
                if all(line.get(name) in values for name, values in wanted.items())
                and (keep is None or keep(line))
            ]
        )

    def one(self, **columns: Any) -> Line:
        """The only line with these values."""
        found = self.where(**columns)
        if len(found) != 1:
            raise ConfigError(f"{len(found)} cells have {columns}, not one.")
        return found.lines[0]

    @property
    def run(self) -> Findings:
        """Those that have results."""
        return self.where(lambda line: bool(line.results))

    @property
    def complete(self) -> bool:
        """Whether there are lines and all of them have results."""
        return bool(self.lines) and all(line.results for line in self.lines)

    @property
    def settled(self) -> Findings:
        """Those of which no run diverged."""
        return self.where(lambda line: not line.lost)

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(line.cell.task for line in self.lines))

    @property
    def results(self) -> list[Result]:
        return [result for line in self.lines for result in line.results]

    @property
    def mean_difference(self) -> float | None:
        """Mean absolute difference to the paper, over the lines that have both numbers."""
        found = [abs(d) for line in self.lines if (d := line.difference) is not None]
        return float(np.mean(found)) if found else None

    @property
    def worst(self) -> Line | None:
        """The line that is farthest from the paper."""
        compared = [line for line in self.lines if line.difference is not None]
        return max(compared, key=lambda line: abs(line.difference or 0), default=None)


def read_findings(cells: Iterable[Cell], folder: Path) -> Findings:
    """The cells with what a folder of results has of them."""
    return Findings([Line(cell, read_cell(folder, cell)) for cell in cells])
