"""What a benchmark found: printed as a table, kept as a line of JSON, judged by its bounds.

    record = Record("aggregation", "AFA-CD on a 1 GB model")
    record.measure("AFA-CD", rates, unit="GB/s")
    record.ratio("AFA-CD / memory copy", 0.61, least=0.5)
    return record.finish()      # prints, keeps it in results.jsonl, 0 if the bounds are met

A bound that could not be measured counts as missed: nothing is met by not being there.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from anarchic.sim.summary import software
from anarchic.study.results import hardware

RESULTS = Path(__file__).with_name("results.jsonl")

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Measure:
    """One thing, measured some times over; ``group`` is the workload it belongs to."""

    name: str
    unit: str
    median: float
    lowest: float
    highest: float
    repeats: int
    better: Better = "higher"
    group: str = ""
    facts: dict[str, float] = field(default_factory=dict)  # beside the point, but worth showing


@dataclass(frozen=True)
class Ratio:
    """Of two medians of one run: what another machine can be compared by."""

    name: str
    value: float | None  # None: a side of it was not measured
    group: str = ""


@dataclass(frozen=True)
class Bound:
    """What has to hold: ``value`` at ``least`` or at ``most`` so much."""

    name: str
    value: float | None
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        if self.value is None or not math.isfinite(self.value):
            return False
        above = self.least is None or self.value >= self.least
        return above and (self.most is None or self.value <= self.most)


@dataclass
class Record:
    """The findings of one benchmark, by whose ``name`` they are kept."""

    name: str
    title: str
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    machine: dict[str, Any] = field(default_factory=lambda: machine())
    versions: dict[str, str] = field(default_factory=lambda: {**software(), "commit": commit()})
    measures: list[Measure] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)  # what could not be measured, and why

    def measure(
        self,
        name: str,
        values: Sequence[float],
        *,
        unit: str,
        better: Better = "higher",
        group: str = "",
        facts: dict[str, float] | None = None,
    ) -> float:
        """Keep the median and the spread of some values; the median is handed back."""
        median = statistics.median(values)
        low, high, count = min(values), max(values), len(values)
        found = Measure(name, unit, median, low, high, count, better, group, facts or {})
        self.measures.append(found)
        return median

    def bound(
        self,
        name: str,
        value: float | None,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        self.bounds.append(Bound(name, value, least, most))

    def ratio(
        self,
        name: str,
        value: float | None,
        *,
        least: float | None = None,
        most: float | None = None,
        group: str = "",
    ) -> None:
        """Keep a ratio, and its bound where it has one."""
        self.ratios.append(Ratio(name, value, group))
        if least is not None or most is not None:
            self.bound(name, value, least=least, most=most)

    @property
    def met(self) -> bool:
        return all(bound.met for bound in self.bounds)

    def finish(self, path: Path = RESULTS) -> int:
        """Print it, keep it, and give the exit status."""
        print(self.table())
        self.write(path)
        return 0 if self.met else 1

    def write(self, path: Path = RESULTS) -> None:
        values = asdict(self)
        for bound, written in zip(self.bounds, values["bounds"], strict=True):
            written["met"] = bound.met
        keep(_rounded(values), path)

    def table(self) -> str:
        """For a terminal."""
        lines = [f"{self.title} ({self.date}, load before the run {self.machine['load']})"]
        lines.append(f"{'':<34}{'median':>12}{'lowest':>12}{'highest':>12}")
        for m in self.measures:
            what = f"{m.group} {m.name}".strip()
            numbers = "".join(f"{short(v):>12}" for v in (m.median, m.lowest, m.highest))
            facts = "".join(f"  {name} {short(value)}" for name, value in m.facts.items())
            lines.append(f"{what:<34}{numbers}  {m.unit}{facts}")
        lines += [f"{name}: not measured, {why}" for name, why in self.absent.items()]
        lines += [
            f"{f'{r.group} {r.name}'.strip():<46}{short(r.value):>12} times" for r in self.ratios
        ]
        lines += [f"{'met' if b.met else 'MISSED':<8}{b.name}: {said(b)}" for b in self.bounds]
        return "\n".join(lines)


def keep(values: dict[str, Any], path: Path = RESULTS) -> None:
    """Write values as the line of their name, in place of an earlier one; lines stay sorted."""
    lines = _lines(path.read_text(encoding="utf-8")) if path.exists() else {}
    lines[values["name"]] = json.dumps(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{lines[name]}\n" for name in sorted(lines)), encoding="utf-8")


def read(path: Path = RESULTS) -> dict[str, Record]:
    """The kept records by name."""
    return parse(path.read_text(encoding="utf-8")) if path.exists() else {}


def parse(text: str) -> dict[str, Record]:
    """The records among the lines of a file; ``scaling`` keeps a line of another kind there."""
    found = {name: json.loads(line) for name, line in _lines(text).items()}
    return {name: _record(values) for name, values in found.items() if "measures" in values}


def _lines(text: str) -> dict[str, str]:
    return {json.loads(line)["name"]: line for line in text.splitlines()}


def _record(values: dict[str, Any]) -> Record:
    for bound in values["bounds"]:
        del bound["met"]  # it follows from the rest
    values["measures"] = [Measure(**m) for m in values["measures"]]
    values["ratios"] = [Ratio(**r) for r in values["ratios"]]
    values["bounds"] = [Bound(**b) for b in values["bounds"]]
    return Record(**values)


def machine() -> dict[str, Any]:
    """The processor, and how busy it was before the benchmark began."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {**hardware("cpu"), "load": load}


def commit() -> str:
    """The commit that was measured, with a plus sign where the package had changed since."""
    root = Path(__file__).parents[1]

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("diff", "HEAD", "src") else "")
    except OSError:
        return "unknown"


def said(bound: Bound) -> str:
    """A bound in words: what was found, and what was asked for."""
    limits = {"at least": bound.least, "at most": bound.most}
    asked = [f"{word} {short(limit)}" for word, limit in limits.items() if limit is not None]
    return f"{_told_apart(bound.value, list(limits.values()))}, {' and '.join(asked)}"


def _told_apart(value: float | None, limits: Sequence[float | None]) -> str:
    """A value in as many digits as it takes to see on which side of its limits it lies."""
    if value is None or all(value == limit or short(value) != short(limit) for limit in limits):
        return short(value)
    enough = (digits for digits in range(9) if round(value, digits) not in limits)
    return f"{value:,.{next(enough, 9)}f}"


def spread(measure: Measure) -> str:
    """The median, and behind it the lowest and the highest where there are several."""
    lowest, highest = short(measure.lowest), short(measure.highest)
    between = "" if lowest == highest else f" ({lowest} to {highest})"
    return f"{short(measure.median)}{between}"


def short(value: float | None) -> str:
    """A number in as many digits as it deserves."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _rounded(values: Any) -> Any:
    """Five digits: a file that is kept need not hold noise."""
    if isinstance(values, dict):
        return {key: _rounded(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return float(f"{values:.5g}") if isinstance(values, float) else values
