"""``anarchic init``: write the initial model of a run."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from anarchic.cli.options import Given, examples, table, takes
from anarchic.cli.show import number
from anarchic.core import registry
from anarchic.core.types import Layout
from anarchic.errors import ConfigError
from anarchic.worker.initial import InitialModel, write_initial_model

EPILOG = examples(
    "anarchic init --from my_module:Model --out model.safetensors",
    "anarchic init --from my_module:ResNet --buffers average --out model.safetensors",
    "anarchic init --from state.safetensors --train lora_ --out adapters.safetensors",
    "anarchic init --task my_tasks:task --out model.safetensors",
    "anarchic init --model logistic --out model.safetensors",
    "anarchic init --flower my_app:client_fn --out model.safetensors",
)

OPTIONS = table(f"""
  out FILE: File to write; it must not exist.
  model NAME: The model: {", ".join(registry.names("models"))}, or MODULE:NAME.
    (default: that of --from or --task)
  data NAME: The data that --model is for: {", ".join(registry.names("datasets"))}, or
    MODULE:NAME.
  task MODULE:NAME: Instead, a task of your own that has layout and init().
    (default: that of --model or --from)
  from_ SOURCE: Instead, MODULE:NAME of a torch module, its class or a function that makes it; or a
    safetensors file. (default: that of --model or --task)
  from_options: An argument of the class or function of --from; may be repeated.
    (default: its own)
  train REGEX: Only parameters whose names match travel, such as lora_ of adapters.
    (default: all that require a gradient)
  buffers POLICY: What becomes of running statistics, such as those of BatchNorm. average: the
    server averages them; local: each worker keeps its own; refuse: there must be none.
    (default: refuse)
  buffer_names REGEX: With --from: buffers that training changes, by name.
    (default: those named as running statistics)
  flower MODULE:NAME: Instead, a Flower client that has get_parameters; or a function without
    arguments that returns the arrays of the model. (default: that of --model)
  flower_configs: What the Flower client finds in its configuration; may be repeated.
    (default: what pyproject.toml sets for the app)
  seed N: Random seed of the model's parameters, at least 0.
""")


@takes(OPTIONS, InitialModel)
def init(
    out: Path,
    given: Given,
    from_: str | None = None,
    from_options: Mapping[str, Any] | None = None,
    flower: str | None = None,
    flower_configs: Mapping[str, str] | None = None,
) -> None:
    """Write an initial model, version 0, for `anarchic serve --init`."""
    if flower is not None:
        if from_ is not None or given.keys() & {"model", "task"}:
            raise ConfigError(
                "Give --model, --task, --from or --flower: one of them says what to write."
            )
        from anarchic.bridges import flower as bridge

        config = bridge.parse_config(flower_configs or ())
        _tell(out, bridge.write_first(out, flower, config))
        return
    first = write_initial_model(
        out,
        InitialModel(source=from_, options=_arguments(from_options or []), **given),
    )
    for note in first.notes:
        typer.echo(f"Note: {note}", err=True)
    _tell(out, first.layout, kept=len(first.kept))


def _tell(out: Path, layout: Layout, kept: int = 0) -> None:
    averaged = len(layout.buffers)
    told = f", {averaged} of them averaged buffers" if averaged else ""
    told = f", {kept} buffers stay with each worker" if kept else told
    numbers = number(layout.dim)
    typer.echo(f"Wrote {out}: {len(layout.names)} tensors, {numbers} numbers{told}.")


def _arguments(pairs: Iterable[str]) -> dict[str, Any]:
    """``["width=32"]`` as arguments of somebody's function: numbers, true, none, or texts."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--from-option takes NAME=VALUE, such as width=32; got {pair!r}.")
        if name in found:
            raise ConfigError(f"--from-option gives {name} twice; give it once.")
        found[name] = _argument(text.strip())
    return found


def _argument(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        found = literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return found if isinstance(found, int | float | tuple | list) else text
