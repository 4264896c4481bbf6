"""A command whose options are the fields of one record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Annotated, Any, get_origin, get_type_hints

from anarchic.cli.help import option
from anarchic.cli.options import Given, Option


def options_of(
    record: Any, known: Mapping[str, Option]
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Give a command one option per field of ``record``; it gets those that were given.

    Types and defaults are the record's. A mapping is given as NAME=VALUE, as often as needed.
    """
    types = get_type_hints(record)
    parameters = [_parameter(f, types[f.name], known[f.name]) for f in fields(record)]

    def decorate(command: Callable[[Given], None]) -> Callable[..., None]:
        @wraps(command)
        def with_options(**arguments: Any) -> None:
            command({name: v for name, v in arguments.items() if v not in (None, [])})

        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by Typer
        with_options.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_options

    return decorate


def _parameter(field: Field[Any], hint: Any, known: Option) -> inspect.Parameter:
    needed = field.default is MISSING and field.default_factory is MISSING
    shown = field.default if isinstance(field.default, str | int | float) else known.stands_for
    kind = list[str] if get_origin(hint) is Mapping else hint
    info = option(
        known.help,
        shown,
        flag=known.flag or "--" + field.name.replace("_", "-"),
        metavar=known.metavar,
        rich_help_panel=known.group or None,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if needed else None,
        annotation=Annotated[kind if needed else kind | None, info],
    )
