"""How commands describe themselves: one look for every option, and examples at the end."""

from __future__ import annotations

from typing import Any

import typer


def option(help: str, default: object = None, *, flag: str = "", **more: Any) -> Any:
    """An option that says what it is and what holds without it, in words where None does not say.

    Typer would put brackets round a default that is not the parameter's own, and <bool> behind a
    flag, which takes no value.
    """
    if flag:
        more.setdefault("metavar", "")
    text = help if default is None else f"{help} [dim](default: {default})[/dim]"
    return typer.Option(*([flag] if flag else []), help=text, show_default=False, **more)


def examples(*commands: str) -> str:
    """An epilog that shows how a command is called."""
    return "\n\n".join(["Examples:", *(f"  {command}" for command in commands)])
