"""The results of an experiment, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.errors import ConfigError
from anarchic.study.cell import Cell
from anarchic.study.results import IEEE, Result, read_results


@dataclass(frozen=True)
class Outcome:
    """A cell with its results, one per seed; there may be none yet.

    A run that diverged has no accuracy, only that of a shorter run: it is counted, and no part of
    any number.
    """

    cell: Cell
    results: Sequence[Result] = ()

    @property
    def ours(self) -> float | None:
        """The cell's value, mean over the seeds whose runs finished."""
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
    def diverged(self) -> list[Result]:
        return [result for result in self.results if result.diverged]

    @property
    def finished(self) -> list[Result]:
        """The runs that did not diverge."""
        return [result for result in self.results if not result.diverged]

    @property
    def lost(self) -> bool:
        """Whether every run diverged."""
        return bool(self.results) and not self.finished

    def by_seed(self, name: str | None = None) -> dict[int, float]:
        """A number (the cell's value by default) by seed; seeds without it are left out."""
        found = {r.seed: r.numbers.get(name or self.cell.value) for r in self.finished}
        return {seed: float(value) for seed, value in found.items() if value is not None}

    def values(self, name: str) -> list[float]:
        """A number of every seed that has it."""
        return list(self.by_seed(name).values())

    def mean(self, name: str) -> float | None:
        values = self.values(name)
        return float(np.mean(values)) if values else None

    def get(self, column: str) -> Any:
        """A column of the table's row, or the task."""
        return self.cell.task if column == "task" else self.cell.columns.get(column)


@dataclass(frozen=True)
class Findings:
    """All outcomes of an experiment, or those that were selected."""

    outcomes: Sequence[Outcome]

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def where(self, keep: Callable[[Outcome], bool] | None = None, **columns: Any) -> Findings:
        """The outcomes with these values in their columns (``task`` is one) that pass ``keep``.

        A tuple of values stands for any of them: ``where(task="lr", p=(2, 5, 10))``.
        """
        wanted = {n: v if isinstance(v, tuple) else (v,) for n, v in columns.items()}
        found = [o for o in self.outcomes if all(o.get(n) in v for n, v in wanted.items())]
        return Findings(found if keep is None else list(filter(keep, found)))

    def one(self, **columns: Any) -> Outcome:
        """The only outcome with these values."""
        found = self.where(**columns)
        if len(found) != 1:
            raise ConfigError(f"{len(found)} cells have {columns}, not one.")
        return found.outcomes[0]

    @property
    def run(self) -> Findings:
        """The outcomes that have results."""
        return self.where(lambda outcome: bool(outcome.results))

    @property
    def complete(self) -> bool:
        """Whether there are outcomes and all of them have results."""
        return bool(self.outcomes) and all(outcome.results for outcome in self.outcomes)

    @property
    def lost(self) -> Findings:
        """The outcomes of which every run diverged."""
        return self.where(lambda outcome: outcome.lost)

    @property
    def basis(self) -> str:
        """What the numbers rest on: seeds per cell, and the precision where it is not float32's."""
        counts = sorted({len(outcome.results) for outcome in self.run})
        if not counts:
            return ""
        precisions = sorted({result.precision for result in self.results} - {IEEE})
        seeds = f"{' or '.join(map(str, counts))} seed{'' if counts == [1] else 's'}"
        return ", ".join([seeds, *precisions])

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(outcome.cell.task for outcome in self.outcomes))

    @property
    def results(self) -> list[Result]:
        return [result for outcome in self.outcomes for result in outcome.results]

    @property
    def mean_difference(self) -> float | None:
        """Mean absolute difference to the paper, over the outcomes that have both numbers."""
        found = [abs(d) for outcome in self.outcomes if (d := outcome.difference) is not None]
        return float(np.mean(found)) if found else None

    @property
    def worst(self) -> Outcome | None:
        """The outcome that is farthest from the paper."""
        compared = [outcome for outcome in self.outcomes if outcome.difference is not None]
        return max(compared, key=lambda outcome: abs(outcome.difference or 0), default=None)


def differences(of: Outcome, over: Outcome, name: str | None = None) -> dict[int, float]:
    """A number of the one less that of the other, by seed, where both runs finished."""
    ours, theirs = of.by_seed(name), over.by_seed(name)
    return {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}


def difference(of: Outcome, over: Outcome, name: str | None = None) -> float | None:
    """The mean of ``differences``; None where no seed finished with both."""
    found = differences(of, over, name)
    return float(np.mean(list(found.values()))) if found else None


def read_findings(cells: Iterable[Cell], path: Path) -> Findings:
    """The cells with their results in a file."""
    results = read_results(path)
    return Findings([Outcome(cell, results.of(cell)) for cell in cells])
