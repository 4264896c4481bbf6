"""``anarchic export``: write a version of a run to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.steering import Where, Withdrawn
from anarchic.errors import ConfigError

EPILOG = examples(
    "anarchic export run.db --out model.safetensors",
    "anarchic export run.db --version best --metric accuracy --out best.safetensors",
)


def export(
    store: Where,
    out: Annotated[
        Path,
        typer.Option(help="The safetensors file to write.", metavar="FILE", show_default=False),
    ],
    version: Annotated[
        str,
        typer.Option(
            help="A version that is kept, or newest, or best: by what the server's --evaluate "
            "found. [dim](default: newest)[/dim]",
            metavar="N|best|newest",
            show_default=False,
        ),
    ] = "newest",
    metric: Annotated[
        str | None,
        typer.Option(
            help="What the best version is the best by. Metrics called ...loss, ...error or "
            "...distance are better if lower. [dim](default: val_accuracy, val_loss, accuracy or "
            "loss)[/dim]",
            show_default=False,
        ),
    ] = None,
    withdrawn: Withdrawn = False,
) -> None:
    """Write a version of the model to a file, while the server runs or not."""
    from anarchic.server.exporting import export as write

    if version not in ("best", "newest") and not version.isdecimal():
        raise ConfigError(f"--version takes a number, best or newest; got {version!r}.")
    wanted = int(version) if version.isdecimal() else version
    found = write(store, out, version=wanted, metric=metric, withdrawn=withdrawn)  # type: ignore[arg-type]  # as above
    best = "" if found.metric is None else f", the best by {found.metric} ({found.value:g})"
    typer.echo(f"Version {found.version}{best} is in {out}.")
    if found.withdrawn is not None:
        typer.echo(f"It was withdrawn: {found.withdrawn}.")
