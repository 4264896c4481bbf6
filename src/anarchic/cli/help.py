"""Help texts of options, in one style, and examples at the end of a command's help."""

from __future__ import annotations

from typing import Any

import typer


def option(help: str, default: object = None, *, flag: str = "", **more: Any) -> Any:
    """An option with its help text and default; ``default`` may be words, if it is None in code.

    Typer would put brackets around a default that is not the parameter's own, and <bool> after a
    flag, which takes no value.
    """
    if flag:
        more.setdefault("metavar", "")
    text = help if default is None else f"{help} [dim](default: {default})[/dim]"
    return typer.Option(*([flag] if flag else []), help=text, show_default=False, **more)


def examples(*commands: str) -> str:
    """An epilog with example commands."""
    return "\n\n".join(["Examples:", *(f"  {command}" for command in commands)])
