"""Findings as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anarchic.study.findings import Findings, Outcome
from anarchic.study.results import Result
from anarchic.study.study import Study

NOT_RUN = "not run"
MINUS = "\N{MINUS SIGN}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def result_table(study: Study, findings: Findings) -> str:
    """The table of one task: one row per cell, or the values of ``across`` side by side."""
    if (across := study.across) is None:
        return _long(study, findings)
    left = [name for name in columns(findings) if name != across]
    tops = list(dict.fromkeys(outcome.get(across) for outcome in findings))
    keys = list(dict.fromkeys(tuple(outcome.get(name) for name in left) for outcome in findings))
    rows = []
    for key in keys:
        same = dict(zip(left, key, strict=True))
        cells = (findings.where(**{across: top}, **same).outcomes for top in tops)
        entries = ("<br>".join(_entry(study, outcome) for outcome in c) for c in cells)
        rows.append([*map(_text, key), *entries])
    return markdown([*left, *map(str, tops)], rows)


def columns(findings: Findings) -> list[str]:
    """The columns that place a cell in the table; those that no cell uses are left out."""
    named = dict.fromkeys(name for outcome in findings for name in outcome.cell.columns)
    return [name for name in named if any(outcome.get(name) is not None for outcome in findings)]


def fixed(value: float | None, digits: int, *, signed: bool = False) -> str:
    """A number with ``digits`` decimals, fewer from 10 on, none from 1,000 on."""
    if value is None:
        return ""
    decimals = 0 if abs(value) >= 1000 else max(0, digits - 2) if abs(value) >= 10 else digits
    text = f"{value:{'+' if signed else ''},.{decimals}f}"
    return text.replace("-", MINUS)


def _entry(study: Study, outcome: Outcome) -> str:
    """Ours with its spread, then the paper's and the difference."""
    text = _ours(study, outcome)
    if not outcome.results or (outcome.ours is None and not outcome.lost):
        return text
    if outcome.cell.paper is not None:
        compared = (outcome.cell.paper, outcome.difference)
        shown = (fixed(x, study.digits, signed=n == 1) for n, x in enumerate(compared))
        text += f" ({', '.join(filter(None, shown))})"
    return text + _warning(outcome)


def _long(study: Study, findings: Findings) -> str:
    left = columns(findings)
    has_paper = any(outcome.cell.paper is not None for outcome in findings)
    compared = ["paper", "difference"] if has_paper else []
    shown = list(study.show.get(findings.tasks[0], ())) if findings.outcomes else []
    rows = []
    for outcome in findings:
        row = [_text(outcome.get(name)) for name in left]
        row.append(_ours(study, outcome) + _warning(outcome))
        if has_paper:
            row.append(fixed(outcome.cell.paper, study.digits))
            row.append(fixed(outcome.difference, study.digits, signed=True))
        rows.append(row + [fixed(outcome.mean(name), study.digits) for name in shown])
    return markdown([*left, "ours", *compared, *shown], rows)


def more_numbers(study: Study, findings: Findings) -> str:
    """A table of the numbers in ``show``, where the main table has no room for them."""
    names = study.show.get(findings.tasks[0], ()) if findings.outcomes else ()
    if study.across is None or not names or not findings.run.outcomes:
        return ""
    left = columns(findings)
    rows = (
        [_text(o.get(n)) for n in left] + [fixed(o.mean(n), study.digits) for n in names]
        for o in findings.run
    )
    return markdown([*left, *names], rows)


def _ours(study: Study, outcome: Outcome) -> str:
    if outcome.ours is None:
        return "no number" if outcome.results else NOT_RUN
    spread = "" if outcome.spread is None else f" ± {fixed(outcome.spread, study.digits)}"
    return fixed(outcome.ours, study.digits) + spread


def _warning(outcome: Outcome) -> str:
    """How many seeds diverged and where, and a mix of precisions."""
    text = ""
    if bad := outcome.diverged:
        of = f" in {len(bad)} of {len(outcome.results)}" if len(outcome.results) > 1 else ""
        text = f", diverged{of} {' and '.join(dict.fromkeys(map(_end, bad)))}".rstrip()
    precisions = sorted({result.precision for result in outcome.results})
    return f"{text}, in {' and '.join(precisions)}" if len(precisions) > 1 else text


def _end(result: Result) -> str:
    """Where it diverged; older results only have the last evaluation before that."""
    at, after = (result.numbers.get(name) for name in ("diverged_at", "rounds"))
    if at is not None:
        return f"at round {at:,}"
    return "" if after is None else f"after round {after:,}"


def _text(value: Any) -> str:
    return "" if value is None else str(value)
