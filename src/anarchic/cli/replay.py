"""``anarchic replay``: fold a recorded run again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli import scripts
from anarchic.cli.options import examples
from anarchic.cli.scripts import scripted
from anarchic.cli.show import counting
from anarchic.errors import ConfigError

EPILOG = examples(
    "anarchic serve --init model.safetensors --store run.db --keep-payloads  # some time before",
    "anarchic replay run.db",
    "anarchic replay run.db --until 40 --out version-40.safetensors",
)


@scripted
def replay(
    run: Annotated[
        str,
        typer.Argument(help="The server's store: a file, or postgresql://...", metavar="PATH|URL"),
    ],
    until: Annotated[
        int | None,
        typer.Option(
            help="Fold up to this version. [dim](default: the newest)[/dim]",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the model of that version to this file. [dim](default: write none)[/dim]",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fold the recorded updates again and compare the parameters, byte for byte.

    What operators did is done again too. The server must have run with --keep-payloads.
    Exits with 1 if the parameters differ from those that were published.
    """
    from anarchic.server.exporting import fold_again
    from anarchic.server.store import open_store

    with closing(open_store(run, create=False)) as store:
        begun = store.run()
        if begun is None:
            raise ConfigError(f"The store {run} holds no run yet.")
        last = begun.version if until is None else until
        with counting("updates folded", begun.folded) as progress:
            found = fold_again(store, last, out, progress)
    scripts.found(**asdict(found), out=out)
    same = {True: "equal to", False: "DIFFERENT from", None: ""}[found.equal]
    told = f"parameters {same} the published ones" if same else "which is no longer kept"
    typer.echo(f"Folded {found.updates} updates again: version {found.version}, {told}.")
    if found.withdrawn is not None:
        typer.echo(f"That version was withdrawn: {found.withdrawn}.")
    if out is not None:
        typer.echo(f"The model of version {found.version} is in {out}.")
    if found.equal is False:
        raise typer.Exit(1)
