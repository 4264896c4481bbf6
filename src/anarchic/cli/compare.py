"""``anarchic compare``: recorded runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.cli.show import MISSING, number, percent, print_table

EPILOG = examples(
    "anarchic compare runs/cd runs/cs",
    "anarchic compare runs/* --out compare.png --csv compare.csv",
    "anarchic compare runs/* --metric loss --out loss.png",
)

OPTIONS = table("""
  metric NAME: The metric to compare: a column of metrics.csv, such as loss.
  out FILE: Draw the metric by round, and by virtual time for runs with a clock: .png, .svg or .pdf.
    (default: nothing is drawn)
  workers FILE: Draw the worst tenth of the workers by round and all workers at the end, for runs
    with --per-worker. (default: nothing is drawn)
  csv FILE: Write the numbers of every evaluation as CSV. (default: they are not written)
""")
Runs = Annotated[
    list[Path], typer.Argument(help="Directories of runs, finished or not.", metavar="RUN")
]


@takes(OPTIONS)
def compare(
    runs: Runs,
    metric: str = "accuracy",
    out: Path | None = None,
    workers: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Compare recorded runs, in a table and in a picture."""
    from anarchic.report.runs import check_metric, compare_runs, read_runs, write_csv

    read = read_runs(runs)
    if metric != "accuracy":  # which a run may lack: then its place in the table is empty
        check_metric(read, metric)
    shown = percent if metric == "accuracy" else _value
    header = "run", "rule", "rounds", "final", "last 10", "virtual s", "updates", "steps/s"
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
        for row in compare_runs(read, metric)
    ]
    print_table(header, rows, names=2)
    if any(run.summary is None for run in read):
        typer.echo("+: not finished.")
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
