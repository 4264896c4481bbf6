"""The one page of all experiments: ``docs/reproduction.md``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import fsum
from pathlib import Path

from anarchic.study import find
from anarchic.study.findings import Findings, read_findings
from anarchic.study.flags import Flags, paths
from anarchic.study.page import CLAIMS, TIMES, duration, judged, mean_difference, times
from anarchic.study.study import Study
from anarchic.study.tables import NOT_RUN, fixed, markdown

Read = Sequence[tuple[Study, Findings]]

BEGIN = "<!-- Made by anarchic reproduce all --report from the raw results. -->"
END = "<!-- The end of what is made. -->"


def write_overview(studies: Sequence[Study]) -> Path:
    path = overview_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(overview_text(studies, path.parent), encoding="utf-8")
    return path


def write_readme(studies: Sequence[Study]) -> Path | None:
    """Put a sentence of each study that has one into the README of a clone, between two marks."""
    path = find.folder().parent / "README.md"
    if not path.exists():  # an installed package
        return None
    path.write_text(readme_text(path.read_text(encoding="utf-8"), studies), encoding="utf-8")
    return path


def readme_text(text: str, studies: Sequence[Study]) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    read = read_all(_in_order(studies))
    said = (study.in_short(found) for study, found in read if study.in_short is not None)
    lines = "\n".join(f"- {text}" for text in said if text)
    return "\n\n".join([before + BEGIN, lines, END + after])


def read_all(studies: Sequence[Study]) -> Read:
    """Each study with its findings."""
    shown = ((study, paths(study, Flags()).shown) for study in studies)
    return [(study, read_findings(study.cells, path)) for study, path in shown]


def headlines(read: Read) -> list[str]:
    return [study.headline(findings) for study, findings in read if study.headline is not None]


def overview_path() -> Path:
    """In ``docs`` of a clone; in ``runs`` in the working directory of an installed package."""
    beside = find.folder().parent
    docs = Path("runs") if beside == find.PACKAGE else beside / "docs"
    return docs / "reproduction.md"


def overview_text(studies: Sequence[Study], folder: Path) -> str:
    """The whole page, the paper's tables first; its links begin in ``folder``."""
    read = read_all(_in_order(studies))
    own = [(study, findings) for study, findings in read if study.results_of is None]
    parts = [
        "<!-- Made by anarchic reproduce all --report from the raw results. Do not edit. -->",
        "# The paper, reproduced",
        "Every table and figure of *Anarchic Federated Learning* (Yang, Zhang, Khanduri, Liu, ICML "
        "2022), and what it claims, run again by `anarchic reproduce`. Each number on this page is "
        "computed from the raw results beside each experiment (`results.jsonl`); "
        "`anarchic reproduce all --report` makes it again. Nothing is tuned for a cell, "
        "but in the league, where all rules are tuned with the same budget. "
        "[findings.md](findings.md) says in one page what was found.",
        *headlines(read),
        "## How near it comes",
        _summary(own, folder),
        "## What must hold",
        _claims(read),
        *(part for study, findings in read for part in _section(study, findings, folder)),
        "## Hardware and run times",
        _times(own),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_order(studies: Sequence[Study]) -> list[Study]:
    """The paper's tables first."""
    return sorted(studies, key=lambda study: (not study.name.startswith("table"), study.name))


def _summary(read: Read, folder: Path) -> str:
    header = ("experiment", "task", "cells", "rests on", "mean abs. difference", "worst cell")
    rows = []
    for study, findings in read:
        for task in study.tasks:
            of_task = findings.where(task=task)
            done = of_task.run
            link = f"[{study.name}]({_pages(study, folder)}/README.md)"
            cells = f"{len(done)} of {study.count(of_task)}" if done.outcomes else NOT_RUN
            row = [link, study.task_name(task), cells, done.basis]
            rows.append([*row, mean_difference(done, study.digits), ""])
            if (worst := done.worst) is not None:
                difference = fixed(worst.difference, study.digits, signed=True)
                rows[-1][-1] = f"{difference} ({worst.cell.name})"
    return markdown(header, rows)


def _claims(read: Read) -> str:
    rows, reasons = [], []
    for study, findings in read:
        of_study, why = judged(study, findings)
        rows += [[study.name, *row] for row in of_study]
        reasons += why
    table = markdown(("experiment", *CLAIMS), rows)
    return "\n\n".join([table, "\n".join(reasons)]).strip()


def _section(study: Study, findings: Findings, folder: Path) -> list[str]:
    pages, link = paths(study, Flags()).pages, _pages(study, folder)
    pictures = [p for p in study.pictures if (pages / p.file).exists()]
    done = len(findings.run)
    count = study.count(findings)
    state = "" if done == count else f" {done} of {count} cells have results."
    return [
        f"## {study.title}",
        f"`anarchic reproduce {study.name}`: [tables and settings]({link}/README.md).{state}",
        *(f"![{p.caption}]({link}/{p.file})" for p in pictures),
    ]


def _times(read: Read) -> str:
    rows = [[study.name, *row] for study, findings in read for row in times(study, findings)]
    total = fsum(r.share_s or 0 for _, findings in read for r in findings.results)
    return f"{markdown(('experiment', *TIMES), rows)}\n\nIn all {duration(total)}."


def _pages(study: Study, folder: Path) -> str:
    """Where the pages of a study are, as a link from a page in ``folder``."""
    return Path(os.path.relpath(paths(study, Flags()).pages, folder)).as_posix()
