"""The runs of a sweep as recorded ones."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from anarchic.report.runs import RecordedRun
from anarchic.sim.settings import Settings
from anarchic.study.results import Result
from anarchic.study.sweeps import load_sweep


def runs_of(path: str | os.PathLike[str]) -> list[RecordedRun]:
    """The runs of a sweep that are done, with the curves that it keeps of them."""
    found = load_sweep(path)
    name = Path(path).resolve().name
    return [
        _run(f"{name}/{result.cell}.seed{result.seed}", outcome.cell.settings, result)
        for outcome in found.findings()
        for result in outcome.results
        if isinstance(outcome.cell.settings, Settings)
    ]


def _run(name: str, settings: Settings, result: Result) -> RecordedRun:
    curve = result.curve
    rows = [dict(zip(curve, row, strict=True)) for row in zip(*curve.values(), strict=True)]
    return RecordedRun(name, {**asdict(settings), "seed": result.seed}, rows, {})
