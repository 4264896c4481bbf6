"""Options of a command from the fields of records.

A field's type and default stand in its record and nowhere else; its help stands beside the command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from anarchic.cli.help import option

Given = dict[str, Any]
"""The options that were given on the command line, by the name of their field, still as typed."""


@dataclass(frozen=True)
class Option:
    """One option: its help, and the group in which it is listed."""

    group: str
    help: str
    metavar: str | None = None
    stands_for: str | None = None  # the default in words, where the record has None
    flag: str | None = None  # where it is not the field's name


def takes(
    options: Mapping[str, Option], *records: type
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, each of them a field of one of the records.

    The command gets those that were given as ``given``, beside its own parameters. Options that
    were not given are left out, so that the defaults of the records hold.
    """
    known = {f.name: (f, get_type_hints(record)[f.name]) for record in records for f in _of(record)}
    parameters = [_parameter(option, *known[name]) for name, option in options.items()]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "given"
        ]

        @wraps(command)
        def with_options(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in options}
            command(given={n: v for n, v in given.items() if v not in (None, [])}, **arguments)

        everything = [*parameters, *own]
        with_options.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]  # read by Typer
        with_options.__annotations__ = {p.name: p.annotation for p in everything}
        return with_options

    return decorate


def chosen(record: type, given: Given) -> Given:
    """Those of the given options that are fields of the record."""
    return {f.name: given[f.name] for f in _of(record) if f.name in given}


def _of(record: Any) -> tuple[Field[Any], ...]:  # a dataclass
    return fields(record)


def _parameter(known: Option, field: Field[Any], hint: Any) -> inspect.Parameter:
    flag = known.flag or "--" + field.name.replace("_", "-")
    default, kind = field.default, _typed(hint)
    shown = default if isinstance(default, str | int | float) else known.stands_for
    if default is False:  # giving it is all that it takes
        shown = None
    elif isinstance(default, float):
        shown = f"{default:g}"
    elif kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    metavar = "" if kind is bool else known.metavar
    info = option(known.help, shown, flag=flag, metavar=metavar, rich_help_panel=known.group)
    needed = default is MISSING and field.default_factory is MISSING
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if needed else None,
        annotation=Annotated[kind if needed else kind | None, info],
    )


def _typed(hint: Any) -> Any:
    """What the command line reads for a field: a mapping as pairs, a tuple as one text."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Mapping:
        return list[str]
    return hint if hint in (int, float, bool, str, Path) else str
