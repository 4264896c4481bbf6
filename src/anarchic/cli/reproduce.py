"""``anarchic reproduce``: the tables and figures of the paper."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.show import print_table
from anarchic.errors import ConfigError
from anarchic.study.flags import Flags, flag, flag_types

EPILOG = examples(
    "anarchic reproduce table-1 --task lr --seeds 5",
    "anarchic reproduce table-1 --smoke",
    "anarchic reproduce all --report",
)


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per field of ``Flags``; it gets the record as ``flags``."""
    types = flag_types()
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "flags"
    ]
    parameters = list(own)
    for known in fields(Flags):
        told, name = known.metadata, flag(known.name)
        if types[known.name] is bool:
            name = name if known.default is False else f"{name}/--no-{name[2:]}"
            info = option(told["help"], told["shown"], flag=name)
        else:
            info = option(told["help"], told["shown"], metavar=told["metavar"])
        kind = types[known.name] if known.default is not None else types[known.name] | None
        parameters.append(
            inspect.Parameter(
                known.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=known.default,
                annotation=Annotated[kind, info],
            )
        )

    @wraps(command)
    def with_options(**arguments: Any) -> None:
        flags = Flags(**{known.name: arguments.pop(known.name) for known in fields(Flags)})
        command(flags=flags, **arguments)

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by Typer
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options


@with_flags
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="The experiment, or all; by default they are listed."),
    ] = None,
    *,
    flags: Flags,
) -> None:
    """Run a table or a figure of the paper again, with the paper's numbers beside ours.

    In a clone, results, tables, pictures and a page are written to the experiment's folder.
    Elsewhere they are written to --out, and --report shows the results that came with the package
    until there are others.
    """
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
