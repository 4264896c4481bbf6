"""``anarchic compare`` for sweeps: groups of runs, and what can be said of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from anarchic.cli import scripts
from anarchic.cli.show import MISSING, print_table
from anarchic.core.validation import check_choice
from anarchic.study.bands import AXES, BANDS, plot_groups
from anarchic.study.groups import Asked, Group, groups_of, other_conditions, uneven
from anarchic.study.publish import (
    BANDS_IN_WORDS,
    entry,
    lines_of,
    measures_of,
    write_csv,
    write_latex,
)
from anarchic.study.sweeps import load_sweep
from anarchic.study.verdicts import Test, caution, compare_groups, counted_as, sentences


@dataclass(frozen=True)
class Files:
    """What is to be written."""

    figure: Path | None
    csv: Path | None
    latex: Path | None


def compare_sweeps(
    places: Sequence[str],
    asked: Asked,
    by: Sequence[str],
    over: str,
    band: str,
    files: Files,
    pair: tuple[str, str] | None,
    test: Test,
) -> None:
    kind: Any = band
    check_choice("band", band, BANDS)
    way: Any = over
    groups = groups_of([load_sweep(place) for place in places], asked, by=by, over=way)
    found = [] if pair is None else compare_groups(groups, *pair, asked, test)
    _show(groups, asked, kind)
    if others := other_conditions(groups):
        typer.echo(f"Warning: the runs differ in {', '.join(others)} too.")
    if seeds := uneven(groups):
        typer.echo(f"Warning: {seeds}: compare means over equal seeds.")
    if found and (told := counted_as(groups, asked, test)):
        typer.echo(told)
    said = [*sentences(found, asked, test), *filter(None, [caution(groups, found)])]
    for sentence in said:
        typer.echo(sentence)
    if files.figure is not None:
        typer.echo(f"Drawn in {plot_groups(groups, files.figure, asked, kind)}.")
    lines = lines_of(groups, asked)
    scripts.found(metric=asked.metric, groups=[line.record for line in lines], tests=said)
    if files.latex is not None:
        typer.echo(f"LaTeX in {write_latex(lines, files.latex, asked, kind)}.")
    if files.csv is not None:
        typer.echo(f"Numbers in {write_csv(lines, files.csv, asked)}.")


def _show(groups: Sequence[Group], asked: Asked, band: Any) -> None:
    names = measures_of(asked)
    chosen = any(group.chosen for group in groups)
    header = ["group", *(["best of"] if chosen else []), "runs", *names]
    rows = [
        [
            line.group.label,
            *([line.group.chosen] if chosen else []),
            line.runs,
            *(entry(line, name, band) or MISSING for name in names),
        ]
        for line in lines_of(groups, asked)
    ]
    print_table(header, rows, names=3 if chosen else 2)
    typer.echo(
        f"{asked.metric} against {AXES[asked.against]}: mean, ± {BANDS_IN_WORDS[band]}; area is "
        "the mean height of the curve."
    )
    if chosen:
        typer.echo(
            "Of several settings, the best at the end was taken: unless there are validation data, "
            "that flatters; anarchic tune chooses fairly."
        )
