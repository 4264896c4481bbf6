"""``anarchic token``: who may push."""

from __future__ import annotations

from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.show import print_table

app = typer.Typer(
    no_args_is_help=True,
    help="Give workers the tokens with which they may push, and revoke them.",
    epilog=examples(
        "anarchic token add ann --store run.db > ann.token",
        "anarchic token list --store run.db",
        "anarchic token revoke ann --store run.db",
    ),
)
Where = Annotated[
    str, typer.Option(help="The server's store: a file, or postgresql://...", metavar="PATH|URL")
]
Name = Annotated[str, typer.Argument(help="The worker's name.")]


@app.command(epilog=examples("anarchic token add ann --store run.db > ann.token"))
def add(worker: Name, store: Where) -> None:
    """Give a worker a token, printed once; only its hash is stored. It replaces a former token."""
    from anarchic.server.access import add_token

    typer.echo(add_token(store, worker))


@app.command(name="list", epilog=examples("anarchic token list --store run.db"))
def list_(store: Where) -> None:
    """Show the workers that have tokens."""
    from anarchic.server.access import list_tokens

    rows = [(name, "valid" if valid else "revoked") for name, valid in list_tokens(store).items()]
    print_table(("worker", "token"), rows, names=2)


@app.command(epilog=examples("anarchic token revoke ann --store run.db"))
def revoke(worker: Name, store: Where) -> None:
    """Revoke a worker's token; a running server notices within a second."""
    from anarchic.server.access import revoke_token

    revoke_token(store, worker)
    typer.echo(f"The token of {worker} is revoked.")
