"""What settings may be: of which kind, and which name was meant."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from anarchic.core.reading import shown
from anarchic.errors import ConfigError

_KINDS: Mapping[Any, tuple[Any, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool | np.bool_, "True or False"),
    str: (str, "a text"),
    Path: ((str, PathLike), "a path"),
    PathLike[str]: (PathLike, "a path"),
    tuple[float, ...]: (tuple, "a tuple of numbers"),
    Sequence[str]: ((list, tuple, str), "a list of texts"),
    Mapping[str, Any]: (Mapping, "a mapping of names to values"),
    NoneType: (NoneType, "None"),
}


def check_kinds(record: Any) -> None:
    """Refuse values of a dataclass that do not fit its hints: numbers in quotes, 1e3 rounds."""
    kind: Any = type(record)
    for name, hint in _hints(kind).items():
        check_kind(name, getattr(record, name), hint)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_kind(name: str, value: object, hint: Any) -> None:
    """Refuse what does not fit a hint such as ``int | None``; of kinds not listed, nothing."""
    hints = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    if get_origin(hint) is Literal:
        hints = (str,)
    kinds = [_kind(hint) for hint in hints]
    if None in kinds:
        return
    known = [kind for kind in kinds if kind is not None]
    # True counts as a whole number in Python, but nobody means it as one.
    fits = any(isinstance(value, kind) for kind, _ in known)
    fits = fits and not (isinstance(value, bool) and bool not in hints)
    if isinstance(value, list | tuple):
        wanted_of_each = str if Sequence[str] in hints else Real
        fits = fits and all(isinstance(each, wanted_of_each) for each in value)
    if not fits:
        wanted = " or ".join(dict.fromkeys(words for _, words in known))
        raise ConfigError(f"{name} must be {wanted}, got {shown(value)}.")


def _kind(hint: Any) -> tuple[Any, str] | None:
    """The types that fit a hint, and how to say it; None for a hint that is not checked."""
    if isinstance(hint, type) and is_dataclass(hint):
        return hint, f"a {hint.__name__}"
    return _KINDS.get(hint)


def check_positive(record: Any, *names: str) -> None:
    """Refuse numbers of a record that are not above 0 and finite."""
    for name in names:
        value = getattr(record, name)
        if not 0 < value < math.inf:
            raise ConfigError(f"{name} must be above 0 and finite, got {value}.")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question for a name that nobody knows, with a space before it; nothing if none is near."""
    close = get_close_matches(word.lower(), list(known), n=1, cutoff=0.7)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_choice(what: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that nobody knows."""
    if name not in known:
        close = did_you_mean(name, known)
        others = f".{close} There are" if close else "; there are"
        raise ConfigError(f"There is no {what} {name!r}{others} {', '.join(known)}.")
