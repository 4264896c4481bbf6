"""``anarchic init``: the model that a server begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.show import number
from anarchic.core import registry
from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError

EPILOG = examples(
    "anarchic init --task my_tasks:task --out model.safetensors",
    "anarchic init --model logistic --out model.safetensors",
)


def init(
    out: Annotated[Path, option("File to write; it must not exist.", metavar="FILE")],
    model: Annotated[
        str | None,
        option(
            f"The model: {', '.join(registry.names('models'))}, or MODULE:NAME.",
            "that of --task",
            metavar="NAME",
        ),
    ] = None,
    data: Annotated[
        str,
        option(
            f"The data that the model is for: {', '.join(registry.names('datasets'))}, or "
            "MODULE:NAME.",
            "digits",
            metavar="NAME",
        ),
    ] = "digits",
    task: Annotated[
        str | None,
        option(
            "Instead, a task of your own that has layout and init().",
            "that of --model",
            metavar="MODULE:NAME",
        ),
    ] = None,
    seed: Annotated[int, option("Of the model's random start.", 0, min=0, metavar="N")] = 0,
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
