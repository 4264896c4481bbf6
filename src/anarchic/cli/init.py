"""``anarchic init``: write the initial model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.show import number
from anarchic.core import registry

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
    seed: Annotated[
        int, option("Random seed of the model's parameters.", 0, min=0, metavar="N")
    ] = 0,
) -> None:
    """Write an initial model, version 0, for `anarchic serve --init`."""
    from anarchic.worker.initial import write_initial_model

    layout = write_initial_model(out, model=model, data=data, task=task, seed=seed)
    typer.echo(f"Wrote {out}: {len(layout.names)} tensors, {number(layout.dim)} numbers.")
