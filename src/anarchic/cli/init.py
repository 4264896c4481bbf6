"""``anarchic init``: write the initial model of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from anarchic.cli.options import examples, table, takes
from anarchic.cli.show import number
from anarchic.core import registry
from anarchic.errors import ConfigError

EPILOG = examples(
    "anarchic init --task my_tasks:task --out model.safetensors",
    "anarchic init --model logistic --out model.safetensors",
    "anarchic init --flower my_app:client_fn --out model.safetensors",
)

OPTIONS = table(f"""
  out FILE: File to write; it must not exist.
  model NAME: The model: {", ".join(registry.names("models"))}, or MODULE:NAME.
    (default: that of --task)
  data NAME: The data that the model is for: {", ".join(registry.names("datasets"))}, or
    MODULE:NAME.
  task MODULE:NAME: Instead, a task of your own that has layout and init().
    (default: that of --model)
  flower MODULE:NAME: Instead, a Flower client that has get_parameters; or a function without
    arguments that returns the arrays of the model. (default: that of --model)
  flower_configs: What the Flower client finds in its configuration; may be repeated.
    (default: what pyproject.toml sets for the app)
  seed N: Random seed of the model's parameters, at least 0.
""")


@takes(OPTIONS)
def init(
    out: Path,
    model: str | None = None,
    data: str = "digits",
    task: str | None = None,
    flower: str | None = None,
    flower_configs: Mapping[str, str] | None = None,
    seed: int = 0,
) -> None:
    """Write an initial model, version 0, for `anarchic serve --init`."""
    from anarchic.worker.task import write_initial_model

    if flower is not None:
        if model is not None or task is not None:
            raise ConfigError("Give --model, --task or --flower: one of them says what to write.")
        from anarchic.bridges import flower as bridge

        config = bridge.parse_config(flower_configs or ())
        layout = bridge.write_first(out, flower, config)
    else:
        layout = write_initial_model(out, model=model, data=data, task=task, seed=seed)
    typer.echo(f"Wrote {out}: {len(layout.names)} tensors, {number(layout.dim)} numbers.")
