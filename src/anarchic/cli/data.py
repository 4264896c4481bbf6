"""``anarchic data``: which data sets there are, and who holds what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.options import Given, settings_from, takes
from anarchic.cli.show import MISSING, number, print_facts, print_table
from anarchic.errors import DataError

app = typer.Typer(
    no_args_is_help=True,
    help="List the data sets, and show how they are dealt to workers.",
    epilog=examples("anarchic data list", "anarchic data holdings --labels-per-worker 2"),
)


@app.command("list", epilog=examples("anarchic data list", "anarchic data list --check"))
@takes("data_dir")
def list_data(
    given: Given,
    check: Annotated[
        bool,
        option("Load each data set that is there and count its samples.", flag="--check"),
    ] = False,
) -> None:
    """List the data sets and where their files are; nothing is downloaded."""
    from anarchic.report.shelf import shelf

    found = list(shelf(given.get("data_dir"), check=check))
    rows = [(kept.name, kept.where, number(kept.train), number(kept.test)) for kept in found]
    header = "data set", "where", "training samples", "test samples"
    columns = 4 if check else 2  # only a data set that was loaded has been counted
    print_table(header[:columns], [row[:columns] for row in rows], names=2)
    problems = [f"{kept.name}: {kept.problem}" for kept in found if kept.problem]
    if problems:
        raise DataError("; ".join(problems))


@app.command(
    epilog=examples("anarchic data holdings --labels-per-worker 2 --out holdings.png"),
)
@takes("data", "data_dir", "data_options", "workers", "labels_per_worker", "dirichlet", "seed")
def holdings(
    given: Given,
    out: Annotated[
        Path | None,
        option("Draw who holds what: .png, .svg or .pdf.", "nothing is drawn", metavar="FILE"),
    ] = None,
) -> None:
    """Show who holds how much of which class, as `anarchic simulate` would deal it."""
    from anarchic.report.holdings import holdings_table, plot_holdings
    from anarchic.sim.settings import partition

    data, parts = partition(settings_from(given))
    table = holdings_table(parts, data.y_train, data.classes)
    held, classes = table.sum(axis=1), (table > 0).sum(axis=1)
    print_facts(
        [
            ("data", f"{data.name}, {data.classes} classes"),
            ("workers", number(len(parts))),
            ("samples dealt", f"{number(held.sum())} of {number(len(data.y_train))}"),
            ("samples a worker", f"{number(held.min())} to {number(held.max())}"),
            ("classes a worker", f"{number(classes.min())} to {number(classes.max())}"),
        ],
        title="Holdings",
    )
    if len(parts) <= 20 and data.classes <= 10:
        rows = [
            (str(worker), *(number(n) if n else MISSING for n in row), number(sum(row)))
            for worker, row in enumerate(table.tolist())
        ]
        print_table(["worker", *map(str, range(data.classes)), "all"], rows)
    if out is not None:
        typer.echo(f"Drawn in {plot_holdings(parts, data.y_train, data.classes, out)}.")
