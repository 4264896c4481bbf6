"""Options of a command: listed in a table of text, typed by the fields of records.

A field's type and default stand in its record and nowhere else. An option that was not given is
not passed on, so that the defaults of the record hold.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from anarchic.core import registry
from anarchic.core.reading import shown as shown_text
from anarchic.errors import ConfigError

Given = dict[str, Any]
"""The options that were given on the command line, by the name of their field, still as typed."""

# Fields of NAME=VALUE pairs: the field that names the part which takes them, and its kind.
_TAKEN_BY = {
    "data_options": ("data", "datasets"),
    "server_options": ("server_opt", "server_steps"),
    "rule_options": ("rule", "rules"),
    "local_options": ("local_rule", "local_rules"),
}
_LISTED = re.compile(r"  (\w+)(?: (\S+|[A-Z]+ [A-Z]+))?: (.+?)(?: \(default: (.+)\))?")


@dataclass(frozen=True)
class Option:
    """One option: its help, and the group in which it is listed."""

    group: str
    help: str
    metavar: str | None = None
    stands_for: str | None = None  # the default in words, where the record has None


def table(text: str) -> dict[str, Option]:
    """Options by the names of their fields, as ``  field METAVAR: help (default: in words)``.

    The name of a group stands at the margin, before its options. Lines indented by four or more
    spaces go on with the option before.
    """
    options, group = {}, "Options"
    for line in re.sub(r"\n {4,}", " ", text).strip("\n").splitlines():
        if found := _LISTED.fullmatch(line):
            options[found[1]] = Option(group, found[3], found[2], found[4])
        else:
            assert not line.startswith(" "), f"neither an option nor a group: {line}"
            group = line
    return options


def known_fields(*records: Any) -> dict[str, tuple[Any, Any]]:
    """The default and the type of every field of the records."""
    return {
        field.name: (_default(field), get_type_hints(record)[field.name])
        for record in records
        for field in fields(record)
    }


def takes(
    options: Mapping[str, Option],
    *records: Any,
    elsewhere: bool = False,
    several: Iterable[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, each its own parameter or a field of one of the records.

    The command gets those of the records as ``given``; what was not given is left out. Options that
    may come from ``elsewhere`` (a file, the environment) are never required on the command line,
    and what was switched on there can be switched off here. Those with ``several`` values are read
    as one text.
    """
    known = known_fields(*records)
    known |= {name: (known[name][0], str) for name in several}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        wants_given = own.pop("given", None) is not None
        all_known = known | {name: (p.default, p.annotation) for name, p in own.items()}
        arguments = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own.values()]
        parameters = [
            *(argument for argument in arguments if argument.name not in options),
            *(
                _parameter(name, option, *all_known[name], elsewhere=elsewhere and name in known)
                for name, option in options.items()
            ),
        ]

        @wraps(command)
        def with_options(**values: Any) -> None:
            values = {name: value for name, value in values.items() if value not in (None, [])}
            mine = {name: values.pop(name) for name in own if name in values}
            command(**mine, **({"given": values} if wants_given else {}))

        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by Typer
        with_options.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_options

    return decorate


def chosen(record: Any, given: Given, base: object = None) -> Given:
    """Those of the given options that are fields of the record, pairs as a mapping.

    What the pairs belong to is named by the given options, or else by ``base`` or the defaults.
    """
    values = {f.name: given[f.name] for f in fields(record) if f.name in given}
    for name, (chooser, kind) in _TAKEN_BY.items():
        if name in values and not isinstance(values[name], Mapping):  # as a file gives it
            part = values.get(chooser) or getattr(base or record, chooser) or "sgd"  # a server step
            names = registry.chain(part) if kind == "local_rules" else [part]
            kinds = [registry.find(kind, each) for each in names]
            values[name] = parse_options(_flag(name[:-1]), values[name], *kinds)
    return values


def examples(*commands: str) -> str:
    """An epilog with example commands."""
    return "\n\n".join(["Examples:", *(f"  {command}" for command in commands)])


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return Parameter.empty if field.default_factory is MISSING else None


def _flag(name: str) -> str:
    return "--" + name.rstrip("_").replace("_", "-")  # from_ is a field where from cannot be one


def _parameter(
    name: str, known: Option, default: Any, hint: Any, *, elsewhere: bool = False
) -> Parameter:
    kind, flag, metavar = typed(hint), _flag(name), known.metavar
    shown = default if isinstance(default, str | int | float) else known.stands_for
    if default is Parameter.empty and elsewhere:
        shown = "none, it must be given"
    if isinstance(default, float):
        shown = f"{default:g}"
    if is_pairs(hint):
        flag, metavar = flag.removesuffix("s"), "NAME=VALUE"
    elif kind is bool:
        metavar = ""  # Typer would write <bool>
        if default is False:  # giving it is all that it takes
            shown = "off" if elsewhere else None
        if default is not False or elsewhere:
            flag = f"{flag}/--no-{flag[2:]}"
    # Typer would put brackets around a default that is not the parameter's own.
    text = known.help if shown is None else f"{known.help} [dim](default: {shown})[/dim]"
    info = typer.Option(
        flag, help=text, show_default=False, metavar=metavar, rich_help_panel=known.group
    )
    needed = default is Parameter.empty and not elsewhere
    hint, default = Annotated[kind if needed else kind | None, info], default if needed else None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def typed(hint: Any) -> Any:
    """What the command line reads for a field: a mapping as pairs, a tuple as one text."""
    hints = hints_of(hint)
    if Sequence[str] in hints or is_pairs(hint):  # an option that may be repeated
        return list[str]
    if hints[0] == tuple[str, str]:  # an option with two words
        return hints[0]
    return hints[0] if hints[0] in (int, float, bool, str, Path) else str


def hints_of(hint: Any) -> list[Any]:
    """The types that a field may have, beside None."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [part for part in parts if part is not type(None)]


def is_pairs(hint: Any) -> bool:
    """Whether a field is a mapping, which the command line reads as NAME=VALUE."""
    return get_origin(hints_of(hint)[0]) is Mapping


def parse_options(flag: str, pairs: Iterable[str], *kinds: Any) -> dict[str, Any]:
    """``["power=0.5"]`` as a mapping, each value of the type that one of ``kinds`` declares.

    They are the dataclasses or functions that take them; ``none`` is None where its type allows
    it. A name that all of them lack is kept: a constructor refuses it.
    """
    types = {n: hint for kind in kinds if kind for n, hint in get_type_hints(kind).items()}
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or not text.strip():
            raise ConfigError(f"{flag} takes NAME=VALUE, such as power=0.5; got {pair!r}.")
        if name in options:
            raise ConfigError(f"{flag} gives {name} twice; give it once.")
        options[name] = _value(flag, name, text.strip(), types.get(name, float))
    return options


def _value(flag: str, name: str, text: str, hint: Any) -> Any:
    kinds = [hint]
    if get_origin(hint) in (Union, UnionType):
        if type(None) in get_args(hint) and text.lower() == "none":
            return None
        kinds = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is Literal:
        kinds = [type(get_args(hint)[0])]  # the constructor checks the value
    kind = next((kind for kind in kinds if kind in _READERS), None)
    if kind is None:
        raise ConfigError(
            f"{flag} {name}: only numbers, names and true or false can be given here; "
            "a server step is chosen with --server-opt."
        )
    return read_text(f"{flag} {name}", text, kind)


def read_text(named: str, text: str, kind: Any) -> Any:
    """A text as a number, true or false; refused under its name."""
    wanted, read = _READERS[kind]
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{named} must be {wanted}, got {shown_text(text)}.") from error


_READERS: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    int: ("a whole number", int),
    float: ("a number", float),
    str: ("a text", str),
}
