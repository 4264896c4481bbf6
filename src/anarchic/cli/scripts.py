"""``--json`` and ``--quiet``: what a script needs of a command that people read."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter
from json import dumps, loads
from typing import Annotated, Any, TextIO

import typer

from anarchic.core.quiet import QUIET
from anarchic.errors import ConfigError
from anarchic.page.numbers import encoded

_OUT: ContextVar[TextIO | None] = ContextVar("_OUT", default=None)  # where JSON goes
_GROUP = "For scripts"
_JSON = typer.Option(
    "--json", help="Print one JSON object, and no tables or progress.", metavar="",
    rich_help_panel=_GROUP,
)  # fmt: skip
_QUIET = typer.Option(
    "--quiet", help="Print nothing but errors and warnings.", metavar="", rich_help_panel=_GROUP
)


def found(**facts: Any) -> None:
    """Print what a command found as JSON, if that was asked for."""
    out = _OUT.get()
    if out is not None:
        out.write(encoded(loads(dumps(facts, default=_plain))) + "\n")  # a NaN becomes null


def scripted(command: Callable[..., None], *, json: bool = True) -> Callable[..., None]:
    """Add ``--quiet`` to a command, and ``--json`` if it calls ``found``."""
    known = inspect.signature(command, eval_str=True)
    flags = {"as_json": _JSON, "quiet": _QUIET} if json else {"quiet": _QUIET}
    more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, flag])
        for name, flag in flags.items()
    ]

    @wraps(command)
    def with_flags(*, as_json: bool = False, quiet: bool = False, **values: Any) -> None:
        if as_json and quiet:
            raise ConfigError("--json and --quiet say different things: leave one out.")
        if not (as_json or quiet):
            command(**values)
            return
        told, silenced = _OUT.set(sys.stdout if as_json else None), QUIET.set(True)
        try:
            with redirect_stdout(io.StringIO()):
                command(**values)
        finally:
            _OUT.reset(told)
            QUIET.reset(silenced)

    parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in known.parameters.values()]
    with_flags.__signature__ = known.replace(parameters=[*parameters, *more])  # type: ignore[attr-defined]  # read by Typer
    with_flags.__annotations__ = {p.name: p.annotation for p in (*parameters, *more)}
    return with_flags


def quietly(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--quiet`` alone, to a command whose results are files."""
    return scripted(command, json=False)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's; paths as text."""
    return value.item() if hasattr(value, "item") else str(value)
