"""``anarchic init``: the model that a server begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.show import examples, number
from anarchic.core.types import Layout, Vector
from anarchic.data import DATASETS
from anarchic.errors import ConfigError
from anarchic.models import MODELS

EPILOG = examples(
    "anarchic init --model logistic --out model.safetensors",
    "anarchic init --task my_tasks:task --out model.safetensors",
)


def init(
    out: Annotated[Path, typer.Option(help="File to write; it must not exist.", metavar="FILE")],
    model: Annotated[
        str | None,
        typer.Option(help="A model of the package.", metavar="|".join(MODELS)),
    ] = None,
    data: Annotated[
        str, typer.Option(help="The data it is for.", metavar="|".join(DATASETS))
    ] = "digits",
    task: Annotated[
        str | None,
        typer.Option(
            help="Instead, a task of your own that has layout and init().", metavar="MODULE:NAME"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the model's random start.", min=0)] = 0,
) -> None:
    """Write a first model, version 0, for `anarchic serve --init`."""
    if (model is None) == (task is None):
        raise ConfigError("Give --model or --task: one of the two says what to write.")
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or write to another file.")
    if not out.parent.is_dir():
        raise ConfigError(f"There is no directory {out.parent} to write {out.name} to.")
    from anarchic.wire import save_model
    from anarchic.worker.first import first_model, first_of_task

    layout: Layout
    params: Vector
    layout, params = first_model(model, data, seed) if model else first_of_task(str(task))
    save_model(out, layout, params)
    typer.echo(f"Wrote {out}: {len(layout.names)} tensors, {number(layout.dim)} numbers.")
