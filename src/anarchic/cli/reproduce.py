"""``anarchic reproduce``: the tables and figures of the paper."""

from __future__ import annotations

from typing import Annotated

import typer

from anarchic.cli.options import Given, Option, examples, takes
from anarchic.cli.scripts import quietly
from anarchic.cli.show import print_table
from anarchic.errors import ConfigError
from anarchic.study.flags import FLAGS, Flags

EPILOG = examples(
    "anarchic reproduce table-1 --task lr --seeds 5",
    "anarchic reproduce table-1 --smoke",
    "anarchic reproduce all --report",
)
OPTIONS = {
    name: Option("Options", flag.help, flag.metavar, flag.shown) for name, flag in FLAGS.items()
}
Name = Annotated[
    str | None, typer.Argument(help="The experiment, or all; by default they are listed.")
]


@quietly
@takes(OPTIONS, Flags)
def reproduce(given: Given, name: Name = None) -> None:
    """Run a table or a figure of the paper again, with the paper's numbers beside ours.

    In a clone, results, pictures and a page are written to the experiment's folder.
    Elsewhere they are written to --out, and --report shows the results that came with the package
    until there are others.
    """
    flags = Flags(**given)
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
