"""``anarchic report``: recorded runs as one file to keep or to send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.core import registry

EPILOG = examples(
    "anarchic report runs/cd --out report.html",
    "anarchic report runs/cd runs/cs --out compared.html",
    "anarchic report run.db --out report.pdf",
)
OPTIONS = table("""
  out FILE: The file to write: .html (one file, opens without a network), .png, .svg or .pdf.
    (default: report.html)
  trust: Run code that the run names, such as a rule as module:Name: only for runs of your own.
""")
Runs = Annotated[
    list[str],
    typer.Argument(
        help="Run directories, or stores of servers (a file, or postgresql://...).",
        metavar="RUN|STORE",
    ),
]


@takes(OPTIONS)
def report(runs: Runs, out: Path = Path("report.html"), trust: bool = False) -> None:
    """Write a report of recorded runs: curves, who took part when, staleness, influence, settings.

    Several runs are compared. An HTML report holds its data and draws them as the live page does.
    A picture shows the curves of all runs, and who took part in the first.
    """
    if out.suffix.lower() == ".html":
        from anarchic.report.page_file import write_page

        with registry.installed_only(trust):
            written = write_page(runs, out)
        typer.echo(f"Written to {written}.")
    else:
        from anarchic.report.summary_figure import plot_report

        with registry.installed_only(trust):
            drawn = plot_report(runs, out)
        typer.echo(f"Drawn in {drawn}.")
    from anarchic.report.runs import read_runs, without_accuracy

    if told := without_accuracy(read_runs(runs)):
        typer.echo(f"{told}: anarchic compare RUN --metric NAME shows one of them.")
