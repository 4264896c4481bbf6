"""``anarchic speedup``: how the cost of reaching a target falls with m, K or M, from runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.cli.show import number, print_table

EPILOG = examples(
    "anarchic simulate --m 2 --rounds 400 --out runs/m2",
    "anarchic simulate --m 4 --rounds 400 --out runs/m4",
    "anarchic simulate --m 8 --rounds 400 --out runs/m8",
    "anarchic speedup runs/m2 runs/m4 runs/m8 --over m --to loss=0.4",
    "anarchic speedup runs/m2 runs/m4 runs/m8 --over m --to accuracy=0.85 --against updates",
)
OPTIONS = table("""
  over NAME: Setting that differs between the runs, such as m, local_steps or workers.
  to METRIC=VALUE: Target. A loss or distance is to fall to it, any other metric to rise to it.
  against NAME: What reaching the target costs: round, updates, local_steps or virtual_s.
  level LEVEL: Confidence level of the interval.
  out FILE: Draw the costs by size, with the fit, to a .png, .svg or .pdf file.
    (default: nothing is drawn)
""")
Runs = Annotated[
    list[str], typer.Argument(help="Runs: directories or stores.", metavar="RUN|STORE")
]
Cost = Literal["round", "updates", "local_steps", "virtual_s"]


@takes(OPTIONS)
def speedup(
    runs: Runs,
    over: str = "m",
    to: str = "accuracy=0.9",
    against: Cost = "round",
    level: float = 0.95,
    out: Path | None = None,
) -> None:
    """Fit the exponent of speed-up to a set of runs: -1 is linear, twice m in half the rounds.

    The runs differ in one setting. Several runs of the same value of it, which differ in their
    seed alone, are repeats, and give an interval by the bootstrap. A run that never reaches the
    target is named and left out together with all runs of its size. The corollaries promise -1 in m
    and K for AFA-CD if the learning rates are theirs and the target is low (`anarchic theory`).
    """
    from anarchic.report.figure import check_format
    from anarchic.report.runs import read_runs
    from anarchic.report.speedup import costs_of, other_differences, plot_speedup
    from anarchic.stats import exponent

    if out is not None:
        check_format(out)
    read = read_runs(runs)
    costs, short = costs_of(read, over=over, to=to, against=against)
    found = exponent(costs, level=level)
    pairs = zip(found.sizes, found.costs, strict=True)
    rows = [(f"{size:g}", number(cost), str(len(costs[size]))) for size, cost in pairs]
    print_table((over, f"{against} to {to}", "runs"), rows, names=0)
    for name in short:
        typer.echo(f"Never reached {to}: {name}; runs of its size are left out.")
    if other := other_differences(read, over):
        typer.echo(f"Warning: the sizes differ in {', '.join(other)} too.")
    sure = "" if found.low is None else f", {100 * level:g} % interval by the bootstrap over runs"
    typer.echo(f"Exponent of {against} in {over}: {found}{sure}; -1 is a linear speed-up.")
    if out is not None:
        typer.echo(f"Drawn in {plot_speedup(found, out, over=over, against=against, to=to)}.")
