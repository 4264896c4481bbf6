"""Where the settings of ``serve`` and ``work`` come from: flag, environment, file, default.

The first of these that says something counts. A settings file is TOML with one key per option of
the command, named as the field of its record; the environment has ``ANARCHIC_`` and the same name
in capitals. The records check the values, wherever they come from.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import Any

import typer

from anarchic.cli.options import Given, Option, hints_of, known_fields, read_text, typed
from anarchic.core.reading import printable, read_file, reason, shown
from anarchic.core.validation import check_kind, did_you_mean
from anarchic.errors import ConfigError

PREFIX = "ANARCHIC_"
CONFIGURED = ("serve", "work")  # modules of their names, each with its KEYS
OTHERS = ("TOKEN", "DATA", "THREADS", "CONFIG")  # variables that are no option of these commands
MAX_FILE = 1 << 20  # bytes
# What Kubernetes sets in every container beside a Service named anarchic: ANARCHIC_PORT is
# tcp://10.0.0.1:8780 then, and nobody meant it as a setting.
_LINK = re.compile(r"ANARCHIC_(SERVICE_|PORT_)\w+|ANARCHIC_PORT=(tcp|udp|sctp)://.*")
DEFAULT, FLAG = "default", "flag"
_TRUTH = {
    **dict.fromkeys(("true", "1", "yes", "on"), "true"),
    **dict.fromkeys(("false", "0", "no", "off"), "false"),
}


@dataclass(frozen=True)
class Setting:
    """A value and its source: ``flag``, a variable's name, a file's name or ``default``."""

    value: Any
    source: str


@dataclass(frozen=True)
class Keys:
    """The settings that a command takes: its options that are fields of these records."""

    command: str
    options: Mapping[str, Option]
    records: tuple[Any, ...]

    @cached_property
    def known(self) -> dict[str, tuple[Any, Any]]:
        """Default and type by name, in the order of the options."""
        fields = known_fields(*self.records)
        return {name: fields[name] for name in self.options if name in fields}


def settled(keys: Keys, flags: Given, config: Path | None) -> Given:
    """What was given, wherever: a command's settings without those that are defaults."""
    warn_of_unknown_variables()
    found = settle(keys, flags, config)
    return {name: each.value for name, each in found.items() if each.source != DEFAULT}


def warn_of_unknown_variables() -> None:
    """On stderr, one line for each variable that looks like a setting and is none."""
    for name in unknown_variables():
        near = get_close_matches(name, _variables(), n=1, cutoff=0.7)
        told = f"Did you mean {near[0]}?" if near else "It has no effect."
        typer.echo(f"Warning: There is no variable {printable(name, most=100)}. {told}", err=True)


def settle(
    keys: Keys, flags: Given, config: Path | None, *, complete: bool = True
) -> dict[str, Setting]:
    """Every setting with its source; a ``complete`` one must have those without a default."""
    config = config_file(config)
    told = {} if config is None else _from_file(keys, config)
    told |= _from_environment(keys)
    told |= {name: Setting(value, FLAG) for name, value in flags.items()}
    found = {}
    for name, (default, _) in keys.known.items():
        if name in told:
            found[name] = told[name]
        elif default is not Parameter.empty:
            found[name] = Setting(default, DEFAULT)
        elif complete:
            raise ConfigError(
                f"{name} is missing: give --{name.replace('_', '-')}, set {PREFIX}{name.upper()}, "
                f'or write {name} = "..." into a settings file (--config).'
            )
    return found


def config_file(config: Path | None) -> Path | None:
    """The settings file that was given, or that ANARCHIC_CONFIG names."""
    named = os.environ.get(f"{PREFIX}CONFIG")
    return Path(named) if config is None and named else config


def _from_file(keys: Keys, path: Path) -> dict[str, Setting]:
    found = {}
    for key, value in _read_toml(path).items():
        if key == "token":  # its value is not shown
            raise ConfigError(
                f"{path} holds a token. Settings files are copied and shown, so a token stands in "
                'a file of its own, for its owner alone to read: write token_file = "FILE" instead.'
            )
        if key not in keys.known:
            near = _of_other(key) or did_you_mean(key, keys.known)
            raise ConfigError(
                f"{path}: there is no setting {shown(key)} of anarchic {keys.command}.{near} "
                f"`anarchic config example {keys.command}` lists all."
            )
        hint = keys.known[key][1]
        check_kind(f"{path}: {key}", value, hint)
        found[key] = Setting(_beside(path, value, hint), str(path))
    return found


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(path, most=MAX_FILE).decode())
    except OSError as error:
        raise ConfigError(f"The settings file {path} cannot be read: {reason(error)}.") from error
    except RecursionError:
        raise ConfigError(f"{path} is no settings file: its brackets are too deep.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is no TOML ({reason(error)}): write one setting per line, such as "
            'port = 8780, and texts in quotes, such as store = "run.db".'
        ) from error


def _of_other(key: str) -> str:
    for command in CONFIGURED:
        if key in keys_of(command).known:
            return f" It is one of anarchic {command}."
    return ""


def _beside(path: Path, value: Any, hint: Any) -> Any:
    """A value of a file; a relative path starts where the file is."""
    if Path not in hints_of(hint) or not isinstance(value, str):
        return value
    folder = path.absolute().parent
    if value.startswith("sqlite:///"):
        return f"sqlite:///{folder / value.removeprefix('sqlite:///')}"
    if "://" in value:
        return value
    return typed(hint)(folder / value)


def _from_environment(keys: Keys) -> dict[str, Setting]:
    found = {}
    for name, (_, hint) in keys.known.items():
        variable = PREFIX + name.upper()
        text = os.environ.get(variable, "").strip()
        if text and not _LINK.fullmatch(f"{variable}={text}"):  # an empty one says nothing
            found[name] = Setting(_from_text(variable, text, hint), variable)
    if "token_file" in keys.known and os.environ.get(f"{PREFIX}TOKEN"):
        found.setdefault("token_file", Setting(None, f"{PREFIX}TOKEN"))  # before that of a file
    return found


def _from_text(variable: str, text: str, hint: Any) -> Any:
    kind = typed(hint)
    if kind is Path:
        return Path(text)
    if kind == list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]
    return read_text(variable, _TRUTH.get(text.lower(), text) if kind is bool else text, kind)


def unknown_variables() -> list[str]:
    """Variables that look like settings of ours and are none."""
    known = _variables()
    found = (name for name in os.environ if name.startswith(PREFIX) and not _LINK.fullmatch(name))
    return sorted(name for name in found if name not in known)


def _variables() -> list[str]:
    options = [name for command in CONFIGURED for name in keys_of(command).known]
    return [PREFIX + name for name in (*(each.upper() for each in options), *OTHERS)]


def keys_of(command: str) -> Keys:
    """The settings of a command, by its name."""
    found: Keys = import_module(f"anarchic.cli.{command}").KEYS
    return found
