"""``anarchic compare``: recorded runs side by side, or the groups of runs of sweeps."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli import scripts
from anarchic.cli.options import Given, chosen, examples, table, takes
from anarchic.cli.scripts import scripted
from anarchic.cli.show import MISSING, number, percent, print_table
from anarchic.errors import ConfigError
from anarchic.study.groups import Asked
from anarchic.study.sweeps import is_sweep
from anarchic.study.verdicts import Test

EPILOG = examples(
    "anarchic compare runs/cd runs/cs",
    "anarchic compare runs/* --out compare.png --csv compare.csv",
    "anarchic compare runs/* --metric loss --out loss.png",
    "anarchic sweep --rule afa-cd,afa-cs --seed 0-4 --server-lr 0.5,1 --rounds 20 "
    "--out sweeps/four",
    "anarchic compare sweeps/four --group-by rule --band sd --out fig.pdf --latex table.tex "
    "--csv table.csv",
    "anarchic compare sweeps/four --group-by rule --test afa-cd afa-cs --margin 0.02",
)

OPTIONS = table("""
Runs and sweeps
  metric NAME: The metric to compare: a column of metrics.csv, such as loss.
  out FILE: Draw the metric by round, and by virtual time for runs with a clock (by wall time since
    the first update for stores): .png, .svg or .pdf.
    (default: nothing is drawn)
  csv FILE: Write the numbers of every evaluation as CSV; of sweeps the table.
    (default: they are not written)
Runs
  workers FILE: Draw the worst tenth of the workers by round and all workers at the end, for runs
    with --per-worker. (default: nothing is drawn)
Sweeps
  group_by NAMES: Settings whose values make a group, with commas. Runs of a group must have equal
    data, arrivals and rounds, or --over all. (default: all settings that differ)
  over WAY: Of a group with several settings take the best, by validation data if there are any, or
    all runs: best, all.
  band KIND: What is shown around the mean over the seeds: sd, se, ci, range, none.
  against AXIS: The horizontal axis, also of area and time to target: round, virtual_s, updates,
    bytes.
  target X: Also show when the metric first reached X. (default: not shown)
  latex FILE: Write the table for a paper, as LaTeX. (default: it is not written)
  test A B: Compare groups A and B, paired over common seeds, and say what can be said; B may be
    "all": A with each other group. (default: no test)
  measure NAME: With --test: what is tested: final, best, area, to_target.
  margin X: With --test: also test whether they differ by less than X (two one-sided tests).
    (default: no margin)
  alpha P: With --test: level of the tests, corrected for their number.
  interval KIND: With --test: Student's t, or the bootstrap for many seeds and values that are far
    from normal: t, bca.
  lost_as X: With --test: the value that counts for a run that diverged, failed or missed the
    target. (default: such runs are refused)
""")
Runs = Annotated[
    list[str],
    typer.Argument(
        help="Runs, finished or not: directories, or stores of servers (a file, or "
        "postgresql://...), whose evaluations are compared. Or directories of sweeps.",
        metavar="RUN|STORE|SWEEP",
    ),
]


@scripted
@takes(OPTIONS, Asked, Test)
def compare(
    runs: Runs,
    given: Given,
    out: Path | None = None,
    csv: Path | None = None,
    workers: Path | None = None,
    group_by: str | None = None,
    over: str = "best",
    band: str = "sd",
    latex: Path | None = None,
    test: tuple[str, str] | None = None,
) -> None:
    """Compare recorded runs, or the groups of runs of sweeps, in a table and in a picture."""
    asked, how = Asked(**chosen(Asked, given)), chosen(Test, given)
    sweeps = [place for place in runs if "://" not in place and is_sweep(place)]
    if sweeps:
        from anarchic.cli import compare_sweeps as swept

        if len(sweeps) < len(runs) or workers is not None:
            raise ConfigError(
                "Runs and sweeps are compared apart, and --workers is for runs: give the one or "
                "the other."
            )
        places = swept.Files(out, csv, latex)
        if test is None and how:
            raise ConfigError(
                f"--{next(iter(how)).replace('_', '-')} says how --test compares: add --test A B, "
                "or leave it out."
            )
        names = [] if group_by is None else [_name(each) for each in group_by.split(",")]
        swept.compare_sweeps(sweeps, asked, names, over, band, places, test, Test(**how))
        return
    own = {"group_by": group_by, "latex": latex, "test": test}
    for_sweeps = [name for name, value in own.items() if value is not None]
    for_sweeps += [name for name in given if name != "metric"]
    if strange := next(iter(for_sweeps), None):
        raise ConfigError(
            f"--{strange.replace('_', '-')} is for sweeps, and {runs[0]} is none: leave it out."
        )
    _compare_runs(runs, asked.metric, out, workers, csv)


def _name(text: str) -> str:
    return text.strip().replace("-", "_")


def _compare_runs(
    runs: list[str], metric: str, out: Path | None, workers: Path | None, csv: Path | None
) -> None:
    from anarchic.report.runs import (
        check_metric,
        compare_runs,
        read_runs,
        without_accuracy,
        write_csv,
    )

    read = read_runs(runs)
    if metric != "accuracy":  # which a run may lack: then its place in the table is empty
        check_metric(read, metric)
    shown = percent if metric == "accuracy" else _value
    header = "run", "rule", "rounds", "final", "last 10", "virtual s", "updates", "steps/s"
    compared = compare_runs(read, metric)
    scripts.found(metric=metric, runs=[asdict(row) for row in compared])
    rows = [
        (
            row.name,
            row.rule,
            number(row.rounds) + ("" if row.finished else "+"),
            *map(shown, (row.final, row.last10)),
            number(row.virtual_s),
            number(row.updates),
            number(row.local_steps_per_second),
        )
        for row in compared
    ]
    print_table(header, rows, names=2)
    if any(run.summary is None for run in read):
        typer.echo("+: not finished.")
    if metric == "accuracy" and (told := without_accuracy(read)):
        typer.echo(f"{told}: --metric NAME compares one of them.")
    if out is not None:
        from anarchic.report.curves import plot_runs

        typer.echo(f"Drawn in {plot_runs(read, out, metric)}.")
    if workers is not None:
        from anarchic.report.per_worker import plot_workers

        typer.echo(f"Workers drawn in {plot_workers(read, workers)}.")
    if csv is not None:
        typer.echo(f"Numbers in {write_csv(read, csv)}.")


def _value(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"
