"""``anarchic log``: what operators did to a run."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.show import print_table
from anarchic.cli.steering import Where

EPILOG = examples("anarchic log run.db", "anarchic log run.db --json")


def log(
    store: Where,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per command, with all that is known.")
    ] = False,
) -> None:
    """List what operators did to a run: who, when, what, and what became of it."""
    from anarchic.server.commands import commands
    from anarchic.server.store import open_store

    with closing(open_store(store, create=False)) as opened:
        found = commands(opened)
    if as_json:
        for command in found:
            typer.echo(json.dumps(command.told()))
        return
    rows = []
    for command in found:
        when = datetime.fromtimestamp(command.issued_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        after = "" if command.version is None else str(command.version)
        became = command.outcome if command.reason is None else command.reason
        if command.outcome == "refused":
            became = f"refused: {command.reason}"
        row = (str(command.number), when, command.issued_by, command.kind, after, became)
        rows.append(row)
    print_table(
        ("number", "when (UTC)", "who", "command", "after version", "result"), rows, names=6
    )
