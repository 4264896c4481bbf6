"""Settings in files of deploy/ are settings of the command that reads them."""

from __future__ import annotations

from collections.abc import Iterable

from typer.main import get_command

from anarchic.cli.app import app


def check_settings(command: str, names: Iterable[str]) -> None:
    """Whether the command has an option for each of these names."""
    known = {
        flag.removeprefix("--").replace("-", "_")
        for parameter in get_command(app).commands[command].params
        for flag in parameter.opts
    }
    assert set(names) <= known, f"anarchic {command} has no {sorted(set(names) - known)}"
