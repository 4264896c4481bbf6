"""``anarchic view``: the live page for a recorded or running run."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.core import registry
from anarchic.errors import ConfigError

EPILOG = examples(
    "anarchic view runs/cd --open",
    "anarchic view run.db --port 8790",
    "anarchic view postgresql://localhost/run",
)
OPTIONS = table("""
  port N: Port to listen on; 0 is any that is free.
  open: Open the page in a browser.
  trust: Run code that the run names, such as a rule as module:Name: only for runs of your own.
""")
Where = Annotated[
    str,
    typer.Argument(
        help="A run directory, or a server's store (a file, or postgresql://...).",
        metavar="RUN|STORE",
    ),
]


@takes(OPTIONS)
def view(where: Where, port: int = 0, open: bool = False, trust: bool = False) -> None:
    """Show a run on a page in the browser: who takes part, how late, how far, and what comes of it.

    The run may be finished, simulated just now, or served: a store is read beside its server.
    The page is read-only and can be reached from this machine alone. Ctrl-C ends it.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"A port is a number from 0 to 65535, got --port {port}.")
    try:
        from anarchic.report.view import view as serve_view
    except ImportError as error:
        raise ConfigError(
            f"The page needs the server's packages ({error.name} is missing): "
            "pip install 'anarchic[server]'."
        ) from error

    def told(address: str) -> None:
        typer.echo(f"The page is at {address}")
        typer.echo("Ctrl-C ends it.")
        if open:
            webbrowser.open(address)

    with registry.installed_only(trust):
        serve_view(where, port=port, told=told)
