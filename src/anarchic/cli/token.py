"""``anarchic token``: who may push."""

from __future__ import annotations

from typing import Annotated

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.show import print_table
from anarchic.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True,
    help="Give workers the tokens with which they may push, and take them away.",
    epilog=examples(
        "anarchic token add ann --store run.db > ann.token",
        "anarchic token list --store run.db",
        "anarchic token revoke ann --store run.db",
    ),
)
Where = Annotated[
    str,
    option("The server's store: a file, or postgresql://...", flag="--store", metavar="PATH|URL"),
]
Name = Annotated[str, typer.Argument(help="The worker's name.")]


@app.command(epilog=examples("anarchic token add ann --store run.db > ann.token"))
def add(worker: Name, store: Where) -> None:
    """Give a worker a token, printed once; only its hash is stored. A former one ends."""
    from anarchic.server.auth import new_token
    from anarchic.server.sql import open_store

    token, account = new_token(worker)
    opened = open_store(store)
    try:
        opened.put_account(account)
    finally:
        opened.close()
    typer.echo(token)


@app.command(name="list", epilog=examples("anarchic token list --store run.db"))
def list_(store: Where) -> None:
    """Show the workers that have tokens."""
    from anarchic.server.sql import open_store

    opened = open_store(store, create=False)
    try:
        accounts = opened.accounts()
    finally:
        opened.close()
    rows = [(name, "revoked" if a.revoked else "valid") for name, a in sorted(accounts.items())]
    print_table(("worker", "token"), rows, names=2)


@app.command(epilog=examples("anarchic token revoke ann --store run.db"))
def revoke(worker: Name, store: Where) -> None:
    """Take a worker's token away; a running server notices within a second."""
    from dataclasses import replace

    from anarchic.server.sql import open_store

    opened = open_store(store, create=False)
    try:
        account = opened.accounts().get(worker)
        if account is None:
            raise ConfigError(f"Worker {worker!r} has no token: see 'anarchic token list'.")
        opened.put_account(replace(account, revoked=True))
    finally:
        opened.close()
    typer.echo(f"The token of {worker} is revoked.")
