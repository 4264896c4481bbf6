"""Parse options whose values are lists or NAME=VALUE pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from anarchic.errors import ConfigError


def parse_probabilities(text: str) -> tuple[float, ...]:
    """``"0.2,0.8"`` as numbers."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--arrival-probs takes numbers separated by commas, such as 0.2,0.3,0.5; got {text!r}."
        ) from error


def parse_options(flag: str, pairs: Iterable[str], kind: Any) -> dict[str, Any]:
    """``["power=0.5"]`` as a mapping, each value of the type that ``kind`` declares.

    ``kind`` is the dataclass or function that takes them; ``none`` is None where its type allows
    it. A name that ``kind`` lacks is kept: its constructor refuses it.
    """
    types = get_type_hints(kind) if kind is not None else {}
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
    readers: dict[Any, Callable[[str], Any]] = {
        bool: _truth,
        int: int,
        float: float,
        str: str,
    }
    kind = next((kind for kind in kinds if kind in readers), None)
    if kind is None:
        raise ConfigError(
            f"{flag} {name}: only numbers, names and true or false can be given here; "
            "a server step is chosen with --server-opt."
        )
    try:
        return readers[kind](text)
    except ValueError as error:
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{flag} {name} must be {wanted}, got {text!r}.") from error


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"
