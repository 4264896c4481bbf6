"""``anarchic compare``: recorded runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.cli.show import number, percent, print_table

EPILOG = examples(
    "anarchic compare runs/cd runs/cs",
    "anarchic compare runs/* --out compare.png --csv compare.csv",
)

OPTIONS = table("""
  out FILE: Draw accuracy by round, and by virtual time for runs with a clock: .png, .svg or .pdf.
    (default: nothing is drawn)
  csv FILE: Write the numbers of every evaluation as CSV. (default: they are not written)
""")
Runs = Annotated[
    list[Path], typer.Argument(help="Directories of runs, finished or not.", metavar="RUN")
]


@takes(OPTIONS)
def compare(runs: Runs, out: Path | None = None, csv: Path | None = None) -> None:
    """Compare recorded runs, in a table and in a picture."""
    from anarchic.report.runs import compare_runs, read_runs, write_csv

    read = read_runs(runs)
    header = "run", "rule", "rounds", "final", "last 10", "virtual s", "updates", "steps/s"
    rows = [
        (
            row.name,
            row.rule,
            number(row.rounds) + ("" if row.finished else "+"),
            *map(percent, (row.final_accuracy, row.last10_accuracy)),
            number(row.virtual_s),
            number(row.updates),
            number(row.local_steps_per_second),
        )
        for row in compare_runs(read)
    ]
    print_table(header, rows, names=2)
    if any(run.summary is None for run in read):
        typer.echo("+: not finished.")
    if out is not None:
        from anarchic.report.curves import plot_runs

        typer.echo(f"Drawn in {plot_runs(read, out)}.")
    if csv is not None:
        typer.echo(f"Numbers in {write_csv(read, csv)}.")
