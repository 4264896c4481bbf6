"""Findings as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any

from anarchic.study.findings import Findings, Line
from anarchic.study.results import Result
from anarchic.study.study import Study

NOT_RUN = "not run"
MINUS = "\N{MINUS SIGN}"


def as_csv(study: Study, findings: Findings) -> str:
    """The table of an experiment: a row a cell, with or without results."""
    places = columns(findings)
    numbers = list(dict.fromkeys(n for names in study.show.values() for n in names))
    rows = [
        {
            "task": study.task_name(line.cell.task),
            **{name: line.get(name) for name in places},
            "paper": line.cell.paper,
            "ours": _rounded(line.ours),
            "spread": _rounded(line.spread),
            "difference": _rounded(line.difference),
            "seeds": " ".join(str(r.seed) for r in line.results),
            "rounds": _rounded(line.mean("rounds")),
            **{name: _rounded(line.mean(name)) for name in numbers},
            "stopped_at": _all(r.stopped_at for r in line.results),
            "precision": _all(r.precision for r in line.results),
            "hardware": _all(r.hardware.get("name") for r in line.results),
            "software": _all(r.versions for r in line.results),
            "seconds": _rounded(fsum(r.share_s or 0 for r in line.results)),
            "cell": line.cell.name,
        }
        for line in findings
    ]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["task"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def result_table(study: Study, findings: Findings) -> str:
    """One task: side by side where the study says across what, otherwise a row a cell."""
    if study.across is None:
        return _long(study, findings)
    return _wide(study, findings, study.across)


def columns(findings: Findings) -> list[str]:
    """The columns that place a cell in the table."""
    return list(dict.fromkeys(name for line in findings for name in line.cell.columns))


def fixed(value: float | None, digits: int, *, signed: bool = False) -> str:
    """So many decimals; thousands apart and none of them where the number is large."""
    if value is None:
        return ""
    decimals = 0 if abs(value) >= 1000 else max(0, digits - 2) if abs(value) >= 10 else digits
    text = f"{value:{'+' if signed else ''},.{decimals}f}"
    return text.replace("-", MINUS)


def _wide(study: Study, findings: Findings, across: str) -> str:
    left = [name for name in columns(findings) if name != across]
    left = [name for name in left if any(line.get(name) is not None for line in findings)]
    tops = list(dict.fromkeys(line.get(across) for line in findings))
    keys = list(dict.fromkeys(tuple(line.get(name) for name in left) for line in findings))
    rows = []
    for key in keys:
        same = dict(zip(left, key, strict=True))
        cells = (findings.where(**{across: top}, **same).lines for top in tops)
        rows.append(
            [*map(_text, key), *("<br>".join(_entry(study, line) for line in c) for c in cells)]
        )
    return markdown([*left, *map(str, tops)], rows)


def _entry(study: Study, line: Line) -> str:
    """Ours with its spread, then the paper's and the difference."""
    if line.ours is None:
        return NOT_RUN if not line.results else "none"
    text = _with_spread(study, line)
    if line.cell.paper is not None:
        paper = fixed(line.cell.paper, study.digits)
        text += f" ({paper}, {fixed(line.difference, study.digits, signed=True)})"
    return text + _warning(line)


def _long(study: Study, findings: Findings) -> str:
    left = [n for n in columns(findings) if any(line.get(n) is not None for line in findings)]
    has_paper = any(line.cell.paper is not None for line in findings)
    compared = ["paper", "difference"] if has_paper else []
    shown = list(study.show.get(findings.tasks[0], ())) if findings.lines else []
    rows = []
    for line in findings:
        row = [*(_text(line.get(name)) for name in left)]
        row.append(NOT_RUN if not line.results else _with_spread(study, line) + _warning(line))
        if has_paper:
            row.append(fixed(line.cell.paper, study.digits))
            row.append(fixed(line.difference, study.digits, signed=True))
        row += [fixed(line.mean(name), study.digits) for name in shown]
        rows.append(row)
    return markdown([*left, "ours", *compared, *shown], rows)


def more_numbers(study: Study, findings: Findings) -> str:
    """The further numbers of a task whose table stands side by side, where there are any."""
    names = study.show.get(findings.tasks[0], ()) if findings.lines else ()
    if study.across is None or not names or not findings.run.lines:
        return ""
    left = [n for n in columns(findings) if any(line.get(n) is not None for line in findings)]
    rows = [
        [
            *(_text(line.get(n)) for n in left),
            *(fixed(line.mean(n), study.digits) for n in names),
        ]
        for line in findings.run
    ]
    return markdown([*left, *names], rows)


def _with_spread(study: Study, line: Line) -> str:
    if line.ours is None:
        return "none"
    spread = "" if line.spread is None else f" ± {fixed(line.spread, study.digits)}"
    return fixed(line.ours, study.digits) + spread


def _warning(line: Line) -> str:
    """What a reader must know of the seeds: those that diverged, and a mix of precisions."""
    bad = line.lost
    precisions = sorted({result.precision for result in line.results})
    told = []
    if bad:
        of = f" in {len(bad)} of {len(line.results)}" if len(line.results) > 1 else ""
        told.append(f"diverged{of} {' and '.join(dict.fromkeys(map(_end, bad)))}".rstrip())
    if len(precisions) > 1:
        told.append(f"in {' and '.join(precisions)}")
    return "".join(f", {sentence}" for sentence in told)


def _end(result: Result) -> str:
    """Where it diverged; older results have no more than the last evaluation before that."""
    at, after = (result.numbers.get(name) for name in ("diverged_at", "rounds"))
    if at is not None:
        return f"at round {at:,}"
    return "" if after is None else f"after round {after:,}"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _all(values: Iterable[str | None]) -> str:
    return " + ".join(sorted({value for value in values if value}))


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return int(value) if float(value).is_integer() else float(f"{value:.6g}")
