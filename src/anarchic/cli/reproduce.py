"""``anarchic reproduce``: the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.show import examples, print_table
from anarchic.study.flags import HELP, Flags

EPILOG = examples(
    "anarchic reproduce table-1 --task lr --seeds 5",
    "anarchic reproduce table-1 --smoke",
    "anarchic reproduce all --report",
)


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="The experiment, or all; without it they are listed."),
    ] = None,
    task: Annotated[str | None, typer.Option(help=HELP["task"])] = None,
    seeds: Annotated[int | None, typer.Option(help=HELP["seeds"])] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help=HELP["smoke"])] = False,
    device: Annotated[str, typer.Option(help=HELP["device"])] = "cpu",
    precision: Annotated[str, typer.Option(help=HELP["precision"])] = "ieee",
    graphs: Annotated[
        bool | None, typer.Option("--graphs/--no-graphs", help=HELP["graphs"])
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help=HELP["resume"])] = False,
    out: Annotated[Path | None, typer.Option(help=HELP["out"], metavar="DIR")] = None,
    stop_after: Annotated[
        float | None, typer.Option(help=HELP["stop_after"], metavar="SECONDS")
    ] = None,
    only: Annotated[str | None, typer.Option(help=HELP["only"], metavar="PATTERN")] = None,
    at_once: Annotated[int | None, typer.Option(help=HELP["at_once"])] = None,
    report: Annotated[bool, typer.Option("--report", help=HELP["report"])] = False,
) -> None:
    """Run a table or a figure of the paper again, with the paper's numbers beside ours.

    Results, tables, pictures and a page are written to the folder of the experiment.
    """
    from anarchic.study import find
    from anarchic.study.reproduce import reproduce as run
    from anarchic.study.reproduce import reproduce_all

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
    if name is None:
        rows = [(known, find.load(known).title) for known in find.names()]
        print_table(("experiment", "what it is"), rows, names=2)
    elif name == "all":
        reproduce_all(flags)
    else:
        run(find.load(name), flags)
