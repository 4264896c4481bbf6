"""``anarchic data``: the data sets, and how they are partitioned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from anarchic.cli.options import Given, examples
from anarchic.cli.settings import settings_from, takes
from anarchic.cli.show import MISSING, number, print_facts, print_table
from anarchic.errors import DataError

app = typer.Typer(
    no_args_is_help=True,
    help="List the data sets, and show how they are partitioned among workers.",
    epilog=examples("anarchic data list", "anarchic data partition --labels-per-worker 2"),
)


@app.command("list", epilog=examples("anarchic data list", "anarchic data list --check"))
@takes("data_dir", "  check: Load each data set that is there and count its samples.")
def list_data(given: Given, check: bool = False) -> None:
    """List the data sets and where their files are; nothing is downloaded."""
    from anarchic.report.datasets import list_datasets

    found = list(list_datasets(given.get("data_dir"), check=check))
    rows = [
        (status.name, status.where, number(status.train), number(status.test)) for status in found
    ]
    header = "data set", "where", "training samples", "test samples"
    columns = 4 if check else 2  # samples are counted only when the data set is loaded
    print_table(header[:columns], [row[:columns] for row in rows], names=2)
    problems = [f"{status.name}: {status.problem}" for status in found if status.problem]
    if problems:
        raise DataError("; ".join(problems))


@app.command(
    "partition",
    epilog=examples("anarchic data partition --labels-per-worker 2 --out partition.png"),
)
@takes(
    "data data_dir data_options workers labels_per_worker dirichlet seed",
    "  out FILE: Draw it: .png, .svg or .pdf. (default: nothing is drawn)",
)
def show_partition(given: Given, out: Path | None = None) -> None:
    """Show the samples per worker and class, partitioned as `anarchic simulate` does it."""
    from anarchic.report.datasets import partition_table, plot_partition
    from anarchic.sim.settings import partition

    data, parts = partition(settings_from(given))
    # Without classes there is one column, of all samples.
    classes = data.classes or 1
    y = data.y_train if data.classes else np.zeros(len(data.y_train), np.int64)
    table = partition_table(parts, y, classes)
    held, present = table.sum(axis=1), (table > 0).sum(axis=1)
    facts = [
        ("data", f"{data.name}, {data.classes} classes" if data.classes else data.name),
        ("workers", number(len(parts))),
        ("samples used", f"{number(held.sum())} of {number(len(data.y_train))}"),
        ("samples per worker", f"{number(held.min())} to {number(held.max())}"),
    ]
    if data.classes:
        facts.append(("classes per worker", f"{number(present.min())} to {number(present.max())}"))
    print_facts(facts, title="Partition")
    if len(parts) <= 20 and classes <= 10:
        rows = [
            (str(worker), *(number(n) if n else MISSING for n in row), number(sum(row)))
            for worker, row in enumerate(table.tolist())
        ]
        print_table(["worker", *map(str, range(classes)), "all"], rows)
    if out is not None:
        typer.echo(f"Drawn in {plot_partition(parts, y, classes, out)}.")
