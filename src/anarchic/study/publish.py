"""The table of groups of runs: for a terminal, as CSV, and as LaTeX for a paper."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core.files import write_file
from anarchic.errors import ConfigError
from anarchic.study.bands import AXES, Band, spread
from anarchic.study.groups import MEASURES, Asked, Group, common_end, table_row

BANDS_IN_WORDS = {
    "sd": "one standard deviation over the seeds",
    "se": "one standard error of the mean",
    "ci": "95 % confidence interval of the mean (Student's t)",
    "range": "lowest and highest seed",
    "none": "means over the seeds",
}
_ESCAPES = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


@dataclass(frozen=True)
class GroupRow:
    """One line of the table: a group, and the values of its finished runs by measure."""

    group: Group
    values: Mapping[str, Sequence[float]]

    @property
    def record(self) -> dict[str, Any]:
        """For programs."""
        numbers = {name: list(map(float, values)) for name, values in self.values.items()}
        ends = [run.stopped_at for run in self.group.runs]
        lost = {kind: ends.count(kind) for kind in ("diverged", "failed")}
        chosen = self.group.chosen
        return {"group": self.group.label, "chosen": chosen, "runs": len(ends), **lost, **numbers}

    @property
    def runs(self) -> str:
        """How many runs, and how many of them were lost."""
        lost = self.group.lost
        kinds = {
            kind: sum(run.stopped_at == kind for run in lost) for kind in ("diverged", "failed")
        }
        told = "".join(f", {count} {kind}" for kind, count in kinds.items() if count)
        return f"{len(self.group.runs)}{told}"


def lines_of(groups: Sequence[Group], asked: Asked) -> list[GroupRow]:
    until = common_end(groups, asked)
    return [GroupRow(group, table_row(group, asked, until)) for group in groups]


def measures_of(asked: Asked) -> list[str]:
    return [name for name in MEASURES if name != "to_target" or asked.target is not None]


def entry(line: GroupRow, measure: str, band: Band, scale: float = 1.0) -> str:
    """Mean and band of a measure; of a time to a target also how many runs got there."""
    values = np.array(line.values[measure]) * scale
    if not len(values):
        return ""
    below, above = spread(values, band)
    text = number(float(values.mean()), max(below, above))
    if len(values) > 1 and band != "none":
        reach = number(below, max(below, above)) if max(below, above) > 1e-9 else "0"
        if f"{below:.6g}" == f"{above:.6g}":
            text += f" ± {reach}"
        else:
            text += f" -{reach} +{number(above, max(below, above))}"
    missed = len(line.group.finished) - len(values)
    return text + (f" ({len(values)} of {len(values) + missed})" if missed else "")


def number(value: float, deviation: float = 0.0) -> str:
    """As many decimals as two digits of the deviation need; four significant digits without.

    >>> number(0.91234, 0.0031), number(1234.5, 42.0), number(0.5)
    ('0.9123', '1234', '0.5')
    """
    if not deviation > 1e-9 * abs(value):  # rounding is no deviation
        return f"{value:.4g}"
    decimals = min(6, max(0, 1 - int(np.floor(np.log10(deviation)))))
    return f"{value:.{decimals}f}"


def write_csv(lines: Sequence[GroupRow], path: str | os.PathLike[str], asked: Asked) -> Path:
    """One line per group: mean, standard deviation and number of runs of every measure."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"{name}_{part}" for name in measures_of(asked) for part in ("mean", "sd", "runs")]
    head = ["group", "chosen", "metric", "against", "runs", "diverged", "failed"]
    writer.writerow([*head, *columns])
    for line in lines:
        group = line.group
        ends = [run.stopped_at for run in group.runs]
        row: list[Any] = [group.label, group.chosen, asked.metric, asked.against, len(ends)]
        row += [ends.count("diverged"), ends.count("failed")]
        for name in measures_of(asked):
            values = np.array(line.values[name])
            deviation = values.std(ddof=1) if len(values) > 1 else None
            numbers = values.mean() if len(values) else None, deviation
            row += [*("" if n is None else f"{n:.8g}" for n in numbers), len(values)]
        writer.writerow(row)
    return _write(path, text.getvalue())


def write_latex(
    lines: Sequence[GroupRow], path: str | os.PathLike[str], asked: Asked, band: Band
) -> Path:
    """A ``tabular`` in the style of booktabs, with what its numbers are as a comment."""
    names = measures_of(asked)
    heads = {"to_target": f"{AXES[asked.against]} to {asked.target}", "area": "mean of curve"}
    header = ["", "runs", *(heads.get(name, name) for name in names)]
    rows = [
        [_label(line.group), line.runs, *(entry(line, name, band) for name in names)]
        for line in lines
    ]
    body = [" & ".join(map(_latex, row)) + r" \\" for row in rows]
    return _write(
        path,
        "\n".join(
            [
                f"% {asked.metric} against {AXES[asked.against]}: mean and "
                f"{BANDS_IN_WORDS[band]}. Needs \\usepackage{{booktabs}}.",
                rf"\begin{{tabular}}{{ll{'r' * len(names)}}}",
                r"\toprule",
                " & ".join(map(_latex, header)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                "",
            ]
        ),
    )


def _label(group: Group) -> str:
    return group.label + (f" ({group.chosen})" if group.chosen else "")


def _latex(text: str) -> str:
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return escaped.replace("±", r"$\pm$")


def _write(path: str | os.PathLike[str], text: str) -> Path:
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode())
    except OSError as error:
        raise ConfigError(
            f"Cannot write {path}: {error.strerror or error}. Choose another path."
        ) from error
    return path
