"""``anarchic speedup``: how the cost of reaching a target falls with m, K or M, from runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.cli.show import number, percent, print_table

if TYPE_CHECKING:
    from anarchic.report.runs import RecordedRun

EPILOG = examples(
    "anarchic simulate --m 2 --rounds 400 --out runs/m2",
    "anarchic simulate --m 4 --rounds 400 --out runs/m4",
    "anarchic simulate --m 8 --rounds 400 --out runs/m8",
    "anarchic speedup runs/m2 runs/m4 runs/m8 --over m --to loss=0.4",
    "anarchic speedup runs/m2 runs/m4 runs/m8 --over m --to accuracy=0.85 --against updates",
    "anarchic sweep --m 2,4,8 --seed 0-4 --rounds 400 --eval-every 4 --out sweeps/m",
    "anarchic speedup sweeps/m --over m --to loss=0.4   # with an interval",
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
    list[str],
    typer.Argument(help="Runs: directories, sweeps or stores.", metavar="RUN|SWEEP|STORE"),
]
COARSE = 0.1  # of a cost, between two evaluations


@takes(OPTIONS)
def speedup(
    runs: Runs,
    over: str = "m",
    to: str = "accuracy=0.9",
    against: str = "round",
    level: float = 0.95,
    out: Path | None = None,
) -> None:
    """Fit the exponent of speed-up to a set of runs: -1 is linear, twice m in half the rounds.

    The runs differ in one setting. Several runs of the same value of it, which differ in their
    seed alone, are repeats; the table shows the geometric mean of their costs. Two repeats or more
    of each value give an interval (Student's t), which needs SciPy. Between two evaluations costs
    are interpolated. A run that never reaches the target is named and left out together with all
    runs of its size. The corollaries promise -1 in m and K for AFA-CD if the learning rates are
    theirs and the target is low (`anarchic theory`).
    """
    from anarchic.report.figure import check_format
    from anarchic.report.speedup import costs_of, other_differences, plot_speedup
    from anarchic.stats import exponent

    if out is not None:
        check_format(out)
    read = _read(runs)
    costs = costs_of(read, over=over, to=to, against=against)
    found = exponent(costs.by_size, level=level)
    pairs = zip(found.sizes, found.costs, strict=True)
    rows = [(f"{size:g}", number(cost), str(len(costs.by_size[size]))) for size, cost in pairs]
    repeated = any(len(each) > 1 for each in costs.by_size.values())
    what = f"{against} to {to}" + (", geometric mean" if repeated else "")
    print_table((over, what, "runs"), rows, names=0)
    for name in costs.short:
        typer.echo(f"Never reached {to}: {name}; runs of its size are left out.")
    if other := other_differences(read, over):
        typer.echo(f"Warning: the sizes differ in {', '.join(other)} too.")
    if costs.coarsest > COARSE:
        typer.echo(
            f"Warning: around the target, evaluations are up to {percent(costs.coarsest)} of a "
            "cost apart, and costs are interpolated: evaluate more often (--eval-every)."
        )
    sure = f", {100 * level:g} % interval by Student's t over runs"
    if found.low is None:
        sure = " (no interval: that takes two runs or more of each size)"
    typer.echo(f"Exponent of {against} in {over}: {found}{sure}; -1 is a linear speed-up.")
    if out is not None:
        typer.echo(f"Drawn in {plot_speedup(found, out, over=over, against=against, to=to)}.")


def _read(places: list[str]) -> list[RecordedRun]:
    """The runs in directories and stores, and those of sweeps."""
    from anarchic.report.runs import read_runs
    from anarchic.study.recorded import runs_of
    from anarchic.study.sweeps import is_sweep

    sweeps = [place for place in places if "://" not in place and is_sweep(place)]
    single = read_runs(place for place in places if place not in sweeps)
    return [*single, *(run for place in sweeps for run in runs_of(place))]
