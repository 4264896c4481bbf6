"""``anarchic run``: several runs on one server."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli import serve
from anarchic.cli.options import Given, chosen, examples, table, takes
from anarchic.cli.show import print_table
from anarchic.cli.steering import NoWait, give
from anarchic.server.settings import KeepSettings, RuleSettings

_EXAMPLES = (
    "anarchic run create mnist --store runs --init model.safetensors --m 8",
    "anarchic token add ann --store runs/mnist.db --out ann.token",
    "anarchic serve --store runs",
    "anarchic run list runs",
    "anarchic run end mnist runs",
)
app = typer.Typer(
    no_args_is_help=True,
    help="Begin, list and end the runs of a server of several runs.",
    epilog=examples(*_EXAMPLES),
)
_OWN = table("""
Run
  store DIR|URL: Where the runs are kept: a directory (a file NAME.db per run, made if it is not
    there), or postgresql://... (a schema NAME per run).
  init FILE: First model of the run: `anarchic init` writes one.
  keep_payloads: Keep every update, for `anarchic replay`.
""")
_KEPT = {
    name: replace(serve.OPTIONS[name], group="Kept, evaluated and ended")
    for name in KeepSettings.__dataclass_fields__
}
_RULES = {f.name: serve.OPTIONS[f.name] for f in fields(RuleSettings)}
Name = Annotated[str, typer.Argument(help="The run's name: small letters, digits, '_' and '-'.")]
Where = Annotated[
    str,
    typer.Argument(help="A directory, or postgresql://...", metavar="DIR|URL"),
]


@app.command(epilog=examples(_EXAMPLES[0]))
@takes({**_OWN, **_KEPT, **_RULES}, KeepSettings, RuleSettings)
def create(name: Name, given: Given, store: str, init: Path, keep_payloads: bool = False) -> None:
    """Begin a run; a server of this directory or database serves it within seconds.

    All options are recorded in its store, for every server of it.
    """
    from anarchic.server.hosting import create_run

    rules = chosen(RuleSettings, given)
    kept = keep_payloads or None
    keep = KeepSettings(**chosen(KeepSettings, given))
    for warning in create_run(name, store, init, rules=rules, keep_payloads=kept, keep=keep):
        typer.echo(f"Warning: {warning}", err=True)
    typer.echo(f"Run {name} has begun. Workers reach it with: anarchic work --run {name}")


@app.command(
    name="list", epilog=examples("anarchic run list runs", "anarchic run list runs --json")
)
def list_(
    where: Where,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", metavar="")] = False,
) -> None:
    """Show the runs: newest version, rule, m, workers with valid tokens, and what is wrong."""
    from anarchic.server.hosting import list_runs

    found = list_runs(where)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in found], indent=2))
        return
    rows = [
        (
            row.name,
            *(_cell(v) for v in (row.version, row.rule, row.m, row.workers)),
            row.problem or "",
        )
        for row in found
    ]
    print_table(("run", "version", "rule", "m", "workers", "problem"), rows, names=1)


@app.command(epilog=examples("anarchic run end mnist runs"))
def end(name: Name, where: Where, no_wait: NoWait = False) -> None:
    """End a run: a last version is made, workers stop with 0. The model can still be pulled."""
    from anarchic.server.places import place_of

    give(place_of(where, name), "end", no_wait=no_wait)


def _cell(value: object) -> str:
    return "" if value is None else str(value)
