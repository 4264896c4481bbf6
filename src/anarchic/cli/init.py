"""``anarchic init``: write the initial model of a run."""

from __future__ import annotations

from pathlib import Path

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.cli.show import number
from anarchic.core import registry

EPILOG = examples(
    "anarchic init --task my_tasks:task --out model.safetensors",
    "anarchic init --model logistic --out model.safetensors",
)

OPTIONS = table(f"""
  out FILE: File to write; it must not exist.
  model NAME: The model: {", ".join(registry.names("models"))}, or MODULE:NAME.
    (default: that of --task)
  data NAME: The data that the model is for: {", ".join(registry.names("datasets"))}, or
    MODULE:NAME.
  task MODULE:NAME: Instead, a task of your own that has layout and init().
    (default: that of --model)
  seed N: Random seed of the model's parameters, at least 0.
""")


@takes(OPTIONS)
def init(
    out: Path,
    model: str | None = None,
    data: str = "digits",
    task: str | None = None,
    seed: int = 0,
) -> None:
    """Write an initial model, version 0, for `anarchic serve --init`."""
    from anarchic.worker.task import write_initial_model

    layout = write_initial_model(out, model=model, data=data, task=task, seed=seed)
    typer.echo(f"Wrote {out}: {len(layout.names)} tensors, {number(layout.dim)} numbers.")
