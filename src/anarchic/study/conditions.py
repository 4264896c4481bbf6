"""The conditions of runs: data, arrivals and length, as opposed to what a method may choose.

Results under other conditions say nothing of which method is better. So no best setting is taken
across them, and no test is made across them unless they are what is asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from anarchic.sim.arrivals import CLOCK_ONLY, SAMPLER_ONLY
from anarchic.sim.settings import Settings
from anarchic.study.cell import Cell
from anarchic.study.grid import said

CONDITIONS = (
    *("data", "data_options", "val_share", "model", "workers", "labels_per_worker", "dirichlet"),
    *("participation", *SAMPLER_ONLY, *(each for each in CLOCK_ONLY if each != "timeout_s")),
    *("rounds", "until_s", "eval_samples"),
)
DEFAULTS: Mapping[str, Any] = {
    each.name: getattr(Settings(), each.name) for each in fields(Settings)
}
UNSAID = ("seed", "data_dir", "last10")  # they are the same run, or the same result


def setting(cell: Cell, name: str) -> Any:
    """A setting of a cell, or an entry of one."""
    if name in cell.columns:
        return cell.columns[name]
    asked = cell.settings
    values = vars(asked) if isinstance(asked, Settings) else {**DEFAULTS, **asked}
    if name in values:
        return values[name]
    head, _, entry = name.partition(".")
    return (values.get(head) or {}).get(entry)


def differing(cells: Sequence[Cell]) -> list[str]:
    """The settings by which cells differ, or the entries where a sweep varies these."""
    varied = dict.fromkeys(name for cell in cells for name in cell.columns)
    heads = {name.partition(".")[0] for name in varied}
    every = dict.fromkeys(("rule", *DEFAULTS))
    rest = (name for name in every if name not in heads and name not in UNSAID)
    return [n for n in (*varied, *rest) if len({said(setting(cell, n)) for cell in cells}) > 1]


def unlike(settings: Iterable[Mapping[str, Any]], by: Sequence[str]) -> list[str]:
    """The conditions by which recorded runs differ, besides the settings ``by``."""
    runs, heads = list(settings), {name.partition(".")[0] for name in by}
    return [
        name
        for name in CONDITIONS
        if name not in heads and len({_plain(run.get(name, DEFAULTS[name])) for run in runs}) > 1
    ]


def _plain(value: Any) -> str:
    return said(list(value) if isinstance(value, tuple) else value)
