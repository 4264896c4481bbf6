"""``anarchic config``: the settings of ``serve`` and ``work`` as TOML."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from anarchic.cli.options import Option, chosen, examples, hints_of, is_pairs, typed
from anarchic.cli.sources import (
    DEFAULT,
    Keys,
    Setting,
    config_file,
    keys_of,
    settle,
    warn_of_unknown_variables,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Write a settings file, and show which settings hold and where each comes from.",
    epilog=examples(
        "anarchic config example serve > server.toml",
        "anarchic config show serve --config server.toml",
    ),
)
WIDTH = 100
# In an address: what stands between the user's name and the host, or after password=.
_SECRET = re.compile(r"(://[^/@:]*:)[^/@]+(?=@)|((?<=[?&])\w*password=)[^&\"]+", re.I)
Command = Annotated[
    Literal["serve", "work"],
    typer.Argument(
        help="The command: serve or work. [dim](default: serve)[/dim]", show_default=False
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        help="The settings file. [dim](default: ANARCHIC_CONFIG, otherwise none)[/dim]",
        show_default=False,
        metavar="FILE",
    ),
]


@app.command(
    epilog=examples(
        "anarchic config show serve",
        "anarchic config show serve --config server.toml",
        "anarchic config show work --config worker.toml",
    )
)
def show(command: Command = "serve", config: File = None) -> None:
    """Show the effective settings and where each comes from.

    They come from ANARCHIC_ variables, the settings file and the defaults, in this order.
    The output is a settings file itself; passwords in addresses are left out.
    """
    warn_of_unknown_variables()
    keys = keys_of(command)
    found = settle(keys, {}, config, complete=False)
    parsed = _parsed(keys, found)
    file = config_file(config)
    typer.echo(f"# anarchic {command}" + ("" if file is None else f" --config {file}"))
    for name in keys.known:
        typer.echo(_shown(keys, name, parsed.get(name), found.get(name)))


@app.command(
    epilog=examples(
        "anarchic config example serve > server.toml",
        "anarchic config example work > worker.toml",
    )
)
def example(command: Command = "serve") -> None:
    """Write a settings file with every option, its help and its default, as comments."""
    typer.echo(f"# Settings of `anarchic {command} --config FILE`. Remove the # before a setting")
    typer.echo("# to change it. Relative paths start in the folder of this file.")
    for line in _example(keys_of(command)):
        typer.echo(line)


def _example(keys: Keys) -> Iterator[str]:
    group = ""
    for name, (default, hint) in keys.known.items():
        option = keys.options[name]
        if option.group != group:
            group = option.group
            yield f"\n# --- {group} ---"
        words = option.help if option.stands_for is None else f"{option.help} {_default(option)}"
        yield ""
        yield from (f"# {line}" for line in textwrap.wrap(words, WIDTH - 2, break_on_hyphens=False))
        if default is Parameter.empty:
            yield f"{name} = {as_toml(_sample(option, hint))}"
        else:
            value = default if default is not None else _sample(option, hint)
            yield f"# {name} = {as_toml(value)}"


def _default(option: Option) -> str:
    return f"Default: {option.stands_for}."


def _sample(option: Option, hint: Any) -> Any:
    """A value of the right type where there is no default."""
    if is_pairs(hint):
        return {}
    samples: Mapping[Any, Any] = {int: 1, float: 1.0, bool: True}
    return samples.get(typed(hint), option.metavar or "TEXT")


def _parsed(keys: Keys, found: Mapping[str, Setting]) -> dict[str, Any]:
    """The values by name, NAME=VALUE pairs as mappings."""
    given = {name: each.value for name, each in found.items() if each.source != DEFAULT}
    values = {name: each.value for name, each in found.items()}
    for record in keys.records:
        values |= chosen(record, given)
    return values


def _shown(keys: Keys, name: str, value: Any, setting: Setting | None) -> str:
    """One line. A default is a comment: if given, a run with another value would refuse it."""
    if setting is None:
        return f"# {name} is missing  # there is no default"
    if setting.source == DEFAULT:
        words = keys.options[name].stands_for
        return f"# {name} = {as_toml(value) if words is None else f'({words})'}  # {DEFAULT}"
    if value is None:  # a token, which is not shown
        return f"# {name} = (not used)  # {setting.source}"
    if Path in hints_of(keys.known[name][1]) and "://" not in str(value):
        value = Path(value).absolute()  # so that it holds wherever the output is kept
    text = as_toml(value)
    if (bare := _SECRET.sub(r"\1\2***", text)) != text:
        return f"# {name} = {bare}  # {setting.source}; its password is left out"
    return f"{name} = {text}  # {setting.source}"


def as_toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return _within("{ }", (f"{as_toml(str(key))} = {as_toml(v)}" for key, v in value.items()))
    if isinstance(value, list | tuple):
        return _within("[ ]", map(as_toml, value))
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _within(brackets: str, parts: Iterable[str]) -> str:
    first, last = brackets.split()
    return f"{first}{', '.join(parts)}{last}"
