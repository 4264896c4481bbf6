"""An experiment: cells, what is claimed of them, and how they are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anarchic.errors import ConfigError
from anarchic.study.cell import Cell
from anarchic.study.findings import Findings
from anarchic.study.results import FILE, IEEE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = "<!-- Here the page has its tables. -->"


@dataclass(frozen=True)
class ClaimResult:
    """What a claim measured, whether it is met (None: not known), and that in words."""

    value: float | None
    met: bool | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence with bounds, held against a number that is computed from the results.

    ``value`` computes the number from the outcomes that ``of`` selects, as ``Findings.where`` does.
    It is called once all of these cells have results, and returns None where it cannot say.
    ``reason`` is printed where a bound is missed: what is known about why.

    A run that diverged has no accuracy, so a claim is not met where one of its runs did, unless it
    ``counts_diverged`` ones itself.
    """

    text: str
    value: Callable[[Findings], float | None]
    of: Mapping[str, Any] = field(default_factory=dict)
    at_most: float | None = None
    at_least: float | None = None
    reason: str = ""
    counts_diverged: bool = False

    def __post_init__(self) -> None:
        if self.at_most is None and self.at_least is None:
            raise ConfigError(f"The claim {self.text!r} has no bound: give at_most or at_least.")

    def measured(self, findings: Findings) -> float | None:
        """Its number; None where cells have no results, or none of a finished run."""
        selected = findings.where(**self.of)
        lost = selected.lost.outcomes and not self.counts_diverged
        return self.value(selected) if selected.complete and not lost else None

    def verdict(self, findings: Findings) -> ClaimResult:
        """Its number, and whether it is met."""
        selected, value = findings.where(**self.of), self.measured(findings)
        if not selected.complete:
            return ClaimResult(None, None, "not run")
        bad = sum(len(outcome.diverged) for outcome in selected)
        told = f", {bad} of {len(selected.results)} runs diverged" if bad else ""
        if bad and not self.counts_diverged:
            return ClaimResult(value, False, f"**no**{told}")
        if value is None:
            return ClaimResult(None, None, "not run")
        met = self.holds(value)
        return ClaimResult(value, met, ("yes" if met else "**no**") + told)

    def holds(self, value: float) -> bool:
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A plot beside the page; ``draw`` gives None where there is nothing to draw yet."""

    file: str
    caption: str
    draw: Callable[[Findings], Figure | None]


@dataclass(frozen=True, kw_only=True)
class Study:
    """An experiment, named after its ``folder``.

    ``seeds`` is the default number of seeds per task, ``first_seeds`` the first of them where it is
    not 0, ``at_once`` the number of runs that are trained as one batch. ``in_smoke`` says which
    cells a smoke run has where all would be too many. ``across`` names the column whose values
    stand side by side in the page's table, ``show`` further numbers of the results, by task,
    ``task_names`` the names of the tasks on the page, ``devices`` where they are best run,
    ``precisions`` how a GPU multiplies matrices for them. ``planned`` is the number of cells of a
    task of which some are only known once others have results. ``tables`` makes, by task,
    the Markdown that replaces the usual table, ``more_tables`` further tables after them, ``facts``
    are texts by name for the page of what was found, ``headline`` the table that opens the page of
    all experiments, ``in_short`` a sentence for the project's README, empty while its cells have no
    results; each is a function of the findings.
    With ``results_of`` nothing is trained: the results are those of that experiment.
    """

    folder: Path
    title: str
    cells: Sequence[Cell]
    seeds: Mapping[str, int] = field(default_factory=dict)
    first_seeds: Mapping[str, int] = field(default_factory=dict)
    at_once: Mapping[str, int] = field(default_factory=dict)
    across: str | None = None
    show: Mapping[str, Sequence[str]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    pictures: Sequence[Picture] = ()
    tables: Mapping[str, Callable[[Findings], str]] = field(default_factory=dict)
    more_tables: Callable[[Findings], str] | None = None
    facts: Mapping[str, Callable[[Findings], str]] = field(default_factory=dict)
    headline: Callable[[Findings], str] | None = None
    in_short: Callable[[Findings], str] | None = None
    devices: Mapping[str, str] = field(default_factory=dict)
    precisions: Mapping[str, str] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    task_names: Mapping[str, str] = field(default_factory=dict)
    in_smoke: Callable[[Cell], bool] | None = None
    results_of: str | None = None
    digits: int = 4

    def __post_init__(self) -> None:
        names = [(cell.task, cell.name) for cell in self.cells]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"Two cells of {self.name} have one name: {sorted(twice)}.")

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def results(self) -> Path:
        """The file of its raw results."""
        return self.folder.parent / (self.results_of or self.name) / FILE

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def seeds_of(self, task: str, count: int | None = None) -> range:
        """The seeds of a task's cells: as many as usual, or ``count``."""
        first = self.first_seeds.get(task, 0)
        return range(first, first + (count or self.seeds.get(task, 1)))

    def prose(self) -> tuple[str, str]:
        """``notes.md`` before and after its mark: what was done, and what the numbers show."""
        path = self.folder / "notes.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        about, _, shown = text.partition(MARK)
        return about.strip(), shown.strip()

    def smoke(self) -> Study:
        """The tiny version of it."""
        keep = self.in_smoke
        cells = [cell.smoke() for cell in self.cells if keep is None or keep(cell)]
        title = f"Smoke run, not a result: {self.title}"
        return replace(self, title=title, cells=cells, planned={})

    def command(self, task: str) -> str:
        """The command that trains a task, with its precision."""
        words = f"anarchic reproduce {self.results_of or self.name} --task {task}"
        if (device := self.devices.get(task)) is not None:
            words += f" --device {device}"
            if (precision := self.precision(task, device)) != IEEE:
                words += f" --precision {precision}"
        return words

    def precision(self, task: str, device: str) -> str:
        """The default precision of a task: its own on a GPU, ieee on a CPU."""
        return self.precisions.get(task, IEEE) if device.startswith("cuda") else IEEE

    def count(self, findings: Findings) -> int:
        """How many cells these findings would have if all cells were known."""
        known = Counter(outcome.cell.task for outcome in findings)
        return sum(max(count, self.planned.get(task, 0)) for task, count in known.items())

    def task_name(self, task: str) -> str:
        """As the page calls it."""
        return self.task_names.get(task, task)
