"""``anarchic token``: who may push."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.show import print_table
from anarchic.core.files import write_file
from anarchic.core.reading import reason
from anarchic.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True,
    help="Give workers the tokens with which they may push, and revoke them.",
    epilog=examples(
        "anarchic token add ann --store run.db --out ann.token",
        "anarchic token list --store run.db",
        "anarchic token revoke ann --store run.db",
    ),
)
Where = Annotated[
    str, typer.Option(help="The server's store: a file, or postgresql://...", metavar="PATH|URL")
]
Name = Annotated[str, typer.Argument(help="The worker's name.")]


@app.command(epilog=examples("anarchic token add ann --store run.db --out ann.token"))
def add(
    worker: Name,
    store: Where,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the token to this file, which only you may read. "
            "[dim](default: print it)[/dim]",
            show_default=False,
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Give a worker a token, shown once; only its hash is stored. It replaces a former token."""
    from anarchic.server.access import add_token

    if out is None:
        typer.echo(add_token(store, worker))
        return
    if not out.parent.is_dir():
        raise ConfigError(f"There is no directory {out.parent} for --out {out}: create it first.")
    token = add_token(store, worker)
    try:
        write_file(out, f"{token}\n".encode(), private=True)
    except OSError as error:
        typer.echo(token)
        raise ConfigError(
            f"The token cannot be written to --out {out}: {reason(error)}. It is "
            "printed above, once."
        ) from error
    typer.echo(f"The token of {worker} is in {out}.")


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
