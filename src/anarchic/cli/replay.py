"""``anarchic replay``: fold a recorded run again."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.show import counting

EPILOG = examples(
    "anarchic serve --init model.safetensors --store run.db --keep-payloads  # some time before",
    "anarchic replay run.db",
)


def replay(
    run: Annotated[
        str,
        typer.Argument(help="The server's store: a file, or postgresql://...", metavar="PATH|URL"),
    ],
) -> None:
    """Fold the recorded updates again and compare the parameters, byte for byte.

    The server must have run with --keep-payloads. Exits with 1 if they differ.
    """
    from anarchic.server.replay import replay as fold_again
    from anarchic.server.store import open_store

    with closing(open_store(run, create=False)) as store:
        begun = store.run()
        with counting("updates folded", 0 if begun is None else begun.folded) as progress:
            found = fold_again(store, progress)
    same = "equal to" if found.equal else "DIFFERENT from"
    typer.echo(
        f"Folded {found.updates} updates again: version {found.version}, parameters {same} the "
        "published ones."
    )
    if not found.equal:
        raise typer.Exit(1)
