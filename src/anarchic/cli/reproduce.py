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
from anarchic.study.flags import FLAGS, Flags, flag, flag_types

EPILOG = examples(
    "anarchic reproduce table-1 --task lr --seeds 5",
    "anarchic reproduce table-1 --smoke",
    "anarchic reproduce all --report",
)


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per field of ``Flags``; it gets the record as ``flags``."""
    types = flag_types()
    signature = inspect.signature(command, eval_str=True)
    parameters = [known for known in signature.parameters.values() if known.name != "flags"]
    for known in fields(Flags):
        told, kind, name = FLAGS[known.name], types[known.name], ""
        if kind is bool:
            name = flag(known.name)
            name = name if known.default is False else f"{name}/--no-{name[2:]}"
        info = option(told.help, told.shown, flag=name, metavar="" if name else told.metavar)
        hint: Any = Annotated[kind if known.default is not None else kind | None, info]
        how = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(known.name, how, default=known.default, annotation=hint)
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

    In a clone, results, pictures and a page are written to the experiment's folder.
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
