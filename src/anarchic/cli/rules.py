"""``anarchic rules``: what is installed."""

from __future__ import annotations

from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.core import registry
from anarchic.core.validation import check_choice

EPILOG = examples(
    "anarchic rules",
    "anarchic rules models",
    "anarchic simulate --rule my_module:MyRule  # of your own",
)


def rules(
    kind: Annotated[
        str | None,
        typer.Argument(
            help=f"Only this kind: {', '.join(registry.KINDS)}. [dim](default: all)[/dim]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List installed rules, local rules, participation, data sets, models, tasks and callbacks.

    Each with the package that it comes from. What is not installed is named as MODULE:NAME.
    """
    if kind is not None:
        check_choice("kind of part", kind, registry.KINDS)
    for each in registry.KINDS if kind is None else (kind,):
        parts = registry.parts(each)
        width = max(len(part.name) for part in parts)
        typer.echo(f"{each.replace('_', ' ')}:")
        for part in parts:
            about = registry.first_line(part.spec)
            typer.echo(f"  {part.name:{width}}  {part.package}  {about}".rstrip())
