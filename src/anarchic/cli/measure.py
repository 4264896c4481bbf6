"""``anarchic measure``: what the theorems speak of, measured in a recorded run."""

from __future__ import annotations

from json import dumps
from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from anarchic import theory
from anarchic.cli.options import examples, table, takes
from anarchic.cli.show import MISSING, counting, number, percent, print_facts, print_table
from anarchic.errors import ConfigError
from anarchic.sim.experiment import Experiment
from anarchic.theory import as_dict

EPILOG = examples(
    "anarchic simulate --labels-per-worker 2 --max-staleness 4 --out runs/cd",
    "anarchic measure runs/cd",
    "anarchic measure runs/cd --every 1 --csv measured.csv --out measured.png",
)
OPTIONS = table("""
  every N: Measure every N-th version.
  csv FILE: Write all that was measured as CSV. (default: it is not written)
  weights FILE: Write each worker's weight as CSV. (default: it is not written)
  out FILE: Draw it to a .png, .svg or .pdf file. (default: nothing is drawn)
  json: Print everything as JSON.
""")
SHOWN = 12  # versions in the table
VECTORS = ("squared_gradient", "noise", "drift", "delay", "heterogeneity")
Run = Annotated[Path, typer.Argument(help="Directory of a recorded run.", metavar="RUN")]


@takes(OPTIONS)
def measure(
    run: Run,
    every: int = 10,
    csv: Path | None = None,
    weights: Path | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Measure what the theorems speak of: gradients, noise, drift, age of rows, weights, bytes.

    The run is computed again on the CPU, as far as it came. For every N-th version: the squared
    norm of the gradient of f, the mean of the workers' training losses; the mean squared norms of
    the noise, the drift of local steps and the delay in the updates that make the next version, and
    of the difference between workers; staleness and the age of each worker's last update; bytes and
    local steps spent so far. And how much each worker moved the model.
    """
    from anarchic.report.figure import check_format
    from anarchic.report.measured import plot_measured, write_measured, write_weights
    from anarchic.sim.record import RunDirectory
    from anarchic.theory.recorded import experiment_of

    if out is not None:
        check_format(out)
    if "://" in str(run) or run.is_file():
        raise ConfigError(
            f"{run} is a server's store: its workers kept their data, so there is nothing to "
            "measure. Measure a simulated run; `anarchic theory --run` takes a store."
        )
    _, experiment = experiment_of(RunDirectory(run))
    with counting("measuring: round", experiment.timetable.rounds) as reached:
        rows = theory.measure(experiment, every=every, watch=reached)
    moved, refusal = _weights(experiment)
    if json:
        shares = None if moved is None else moved.shares.tolist()
        typer.echo(dumps({"versions": as_dict(rows), "weights": shares}, indent=2))
    else:
        _print(rows, moved, refusal)
    if csv is not None:
        typer.echo(f"Numbers in {write_measured(rows, csv)}.", err=json)
    if weights is not None and moved is not None:
        typer.echo(f"Weights in {write_weights(moved, weights)}.", err=json)
    if out is not None:
        typer.echo(f"Drawn in {plot_measured(rows, moved, out)}.", err=json)


def _weights(experiment: Experiment) -> tuple[theory.Weights | None, str]:
    """The weights, or why there are none."""
    try:
        return theory.weights_of(experiment), ""
    except ConfigError as error:
        return None, str(error)


def _print(rows: list[theory.Measured], moved: theory.Weights | None, refusal: str) -> None:
    step = -(-len(rows) // SHOWN)
    header = ("version", "|grad f|^2", "noise", "drift", "delay", "workers differ", "row age", "MB")
    shown = [
        (
            number(row.round),
            *(_value(getattr(row, name)) for name in VECTORS),
            f"{row.row_age_mean:.1f}, {row.row_age_max}",
            number(row.bytes / 1e6),
        )
        for row in rows[::step]
    ]
    print_table(header, shown, names=0)
    if step > 1:
        typer.echo(f"{len(shown)} of {len(rows)} versions that were measured; --csv writes all.")
    if moved is None:
        typer.echo(refusal)
        return
    shares = moved.shares
    facts = [
        ("weight of a worker", f"{percent(shares.min())} to {percent(shares.max())}"),
        ("equal weights would be", percent(1 / len(shares))),
        ("Gini index", f"{moved.gini:.3f}"),
    ]
    print_facts(facts, "How much each worker moved the model")


def _value(value: float) -> str:
    return MISSING if isnan(value) else f"{value:.3g}"
