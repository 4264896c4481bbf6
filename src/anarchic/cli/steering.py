"""What the commands that steer a run have in common: their arguments, and what they print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from anarchic.server.commands import Kind

Where = Annotated[
    str,
    typer.Argument(
        help="The server's store: a file, or postgresql://...", metavar="STORE", show_default=False
    ),
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Return at once; do not wait until it is applied.")
]
Withdrawn = Annotated[
    bool,
    typer.Option("--withdrawn", help="Take the version though a rollback has withdrawn it."),
]


def give(
    store: str, kind: Kind, arguments: Mapping[str, Any] | None = None, *, no_wait: bool
) -> None:
    """Give a command, and print what became of it. Exits with 1 if the server refused it."""
    from anarchic.server.operate import WAIT_S, steer

    found = steer(store, kind, arguments, wait_s=0.0 if no_wait else WAIT_S)
    if found.outcome == "applied":
        typer.echo(f"Command {found.number}, {kind}, holds after version {found.version}.")
        typer.echo(found.reason)
    elif found.outcome == "refused":
        typer.echo(f"Error: Command {found.number}, {kind}, was refused: {found.reason}", err=True)
        raise typer.Exit(1)
    else:
        typer.echo(
            f"Command {found.number}, {kind}, waits. The server applies it soon, at its "
            "next start at the latest: see 'anarchic log'."
        )
