"""``anarchic sweep``: every combination of settings, over seeds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from anarchic.cli import scripts, several
from anarchic.cli.options import Given, examples
from anarchic.cli.scripts import scripted
from anarchic.cli.several import grid_from
from anarchic.cli.show import print_table
from anarchic.core.reading import printable
from anarchic.errors import ConfigError, RunError
from anarchic.study.sweeps import Sweep, is_sweep, load_sweep
from anarchic.study.sweeps import run as run_sweep

EPILOG = examples(
    "anarchic sweep --rule afa-cd,afa-cs,fedbuff --seed 0-2 --rounds 20 --dry-run --out sweeps/one",
    "anarchic sweep --rule afa-cd,afa-cs,fedbuff --seed 0-2 --rounds 20 --out sweeps/one",
    "anarchic sweep --out sweeps/one    # go on with what is missing",
    "anarchic sweep --server-lr 0.5,1,2 --vary dynamic-steps=true,false --rounds 20 --jobs 2 "
    "--out sweeps/two",
    "anarchic compare sweeps/one --group-by rule --test afa-cd afa-cs",
)
_OWN = """
Sweep
  out DIR: Directory of the sweep: sweep.json says what it is, results.jsonl has a line per run.
  jobs N: Processes that train batches at the same time.
  at_once N: Runs that are trained as one batch. (default: 16, or fewer so that every process has
    some)
  vary NAME=V1,V2,...: Vary any setting, also a switch (dynamic-steps=true,false) or an entry of a
    mapping (server-options.beta=0.8,0.9); may be repeated. (default: options with several values)
  keep_runs: Record each run in DIR/runs as simulate --out does, with checkpoints and models.
  retry: Run those again that failed. Diverged runs are results and stay.
  dry_run: Show the cells and how long they will take, and train nothing.
"""


@scripted
@several.takes(_OWN)
def sweep(
    given: Given,
    out: Path,
    jobs: int = 1,
    at_once: int | None = None,
    vary: Sequence[str] | None = None,
    keep_runs: bool = False,
    retry: bool = False,
    dry_run: bool = False,
) -> None:
    """Train every combination of settings, over seeds.

    Options of simulate take several values: --rule afa-cd,fedbuff --seed 0-9.

    The same command goes on where it was cut off; nothing is run twice.
    """
    asked = bool(given or vary)
    if not asked and not is_sweep(out):
        raise ConfigError(
            f"{out} holds no sweep: say what is to be varied, such as --rule afa-cd,fedbuff."
        )
    grid = grid_from(given, vary or ()) if asked else load_sweep(out).grid
    if dry_run:
        _show_plan(Sweep(grid, out), jobs, retry)
        return
    try:
        found = run_sweep(grid, out, jobs=jobs, at_once=at_once, keep_runs=keep_runs, retry=retry)
    except KeyboardInterrupt as error:
        go_on = f"anarchic sweep --out {shlex.quote(str(out))}"
        typer.echo(f"Interrupted. Finished batches are kept. To go on: {go_on}", err=True)
        raise typer.Exit(130) from error
    _show_results(found)


def _show_plan(found: Sweep, jobs: int, retry: bool) -> None:
    from anarchic.study.estimate import estimate
    from anarchic.study.watch import duration

    cells = found.findings()
    rows = [
        (outcome.cell.name, outcome.cell.task, f"{len(outcome.results)}/{len(found.grid.seeds)}")
        for outcome in cells
    ]
    print_table(("cell", "data and model", "done"), rows, names=2)
    told = estimate(found, jobs=jobs, retry=retry)
    took = "an unknown time" if told.seconds is None else f"about {duration(told.seconds)}"
    typer.echo(
        f"{len(cells)} cells x {len(found.grid.seeds)} seeds = {told.runs:,} runs; "
        f"{told.missing:,} missing: {took} with --jobs {jobs} ({told.basis})."
    )
    scripts.found(out=found.path, runs=told.runs, missing=told.missing, seconds=told.seconds)


def _show_results(found: Sweep) -> None:
    from anarchic.study.groups import Asked, groups_of
    from anarchic.study.publish import entry, lines_of
    from anarchic.study.trainer import FAILED

    asked = Asked()
    lines = lines_of(groups_of([found], asked), asked)
    rows = [
        (line.group.label, line.runs, *(entry(line, n, "sd") or "-" for n in ("final", "best")))
        for line in lines
    ]
    names = ", ".join(found.grid.names) or "run"
    print_table((names, "runs", "final accuracy", "best"), rows, names=1)
    for outcome in found.findings():
        for kind in ("diverged", FAILED):
            if lost := [run for run in outcome.results if run.stopped_at == kind]:
                why = printable(str(lost[0].numbers.get("reason", "no reason known")))
                typer.echo(f"{outcome.cell.name}: {len(lost)} {kind}: {why}", err=True)
    scripts.found(out=found.path, groups=[line.record for line in lines])
    typer.echo(f"Written to {found.path}. Tables, figures and tests: anarchic compare {found.path}")
    if not any(line.group.finished for line in lines):
        raise RunError("No run of the sweep has a result: all of them failed or diverged.")
