"""``anarchic reproduce``: the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.show import print_table
from anarchic.errors import ConfigError
from anarchic.study.flags import HELP, Flags

EPILOG = examples(
    "anarchic reproduce table-1 --task lr --seeds 5",
    "anarchic reproduce table-1 --smoke",
    "anarchic reproduce all --report",
)


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="The experiment, or all; by default they are listed."),
    ] = None,
    task: Annotated[str | None, option(HELP["task"], "all tasks")] = None,
    seeds: Annotated[int | None, option(HELP["seeds"])] = None,
    smoke: Annotated[bool, option(HELP["smoke"], flag="--smoke")] = False,
    device: Annotated[str, option(HELP["device"], "cpu")] = "cpu",
    precision: Annotated[str | None, option(HELP["precision"])] = None,
    graphs: Annotated[bool | None, option(HELP["graphs"], flag="--graphs/--no-graphs")] = None,
    resume: Annotated[bool, option(HELP["resume"], flag="--resume")] = False,
    out: Annotated[Path | None, option(HELP["out"], metavar="DIR")] = None,
    stop_after: Annotated[
        float | None, option(HELP["stop_after"], "go on to the end", metavar="SECONDS")
    ] = None,
    only: Annotated[str | None, option(HELP["only"], "all cells", metavar="PATTERN")] = None,
    at_once: Annotated[int | None, option(HELP["at_once"])] = None,
    report: Annotated[bool, option(HELP["report"], flag="--report")] = False,
) -> None:
    """Run a table or a figure of the paper again, with the paper's numbers beside ours.

    In a clone, results, tables, pictures and a page are written to the experiment's folder.
    Elsewhere they are written to --out.
    """
    flags = Flags(
        task=task,
        seeds=seeds,
        smoke=smoke,
        device=device,
        precision=precision,
        graphs=graphs,
        resume=resume,
        out=out,
        stop_after=stop_after,
        only=only,
        at_once=at_once,
        report=report,
    )
    if name is None and flags != Flags():
        raise ConfigError("Which experiment? Give its name, or all; alone, the command lists them.")
    try:
        _reproduce(name, flags)
    except KeyboardInterrupt as error:
        typer.echo("Interrupted. To go on, add --resume.", err=True)
        raise typer.Exit(130) from error


def _reproduce(name: str | None, flags: Flags) -> None:
    from anarchic.study import find
    from anarchic.study.reproduce import reproduce as run
    from anarchic.study.reproduce import reproduce_all

    if name is None:
        rows = [(known, find.load(known).title) for known in find.names()]
        print_table(("experiment", "what it is"), rows, names=2)
    elif name == "all":
        reproduce_all(flags)
    else:
        run(find.load(name), flags)
