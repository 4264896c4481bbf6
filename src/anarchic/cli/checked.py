"""What ``--check`` prints: one line per check, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

import typer

from anarchic.core.findings import Finding

READY, NOT_READY = 0, 1


def report(findings: Iterable[Finding], *, as_json: bool) -> None:
    """Print the findings as they come, and end with 1 if a check failed."""
    found = []
    for each in findings:
        found.append(each)
        if not as_json:
            typer.echo(f"{each.status:7}  {each.check:9}  {each.message}")
    failed = sum(each.status == "failed" for each in found)
    if as_json:
        told = {"ready": not failed, "checks": [asdict(each) for each in found]}
        typer.echo(json.dumps(told, indent=2))
    elif failed:
        typer.echo(f"Not ready: {failed} of {len(found)} checks failed.")
    else:
        typer.echo("Ready.")
    raise typer.Exit(NOT_READY if failed else READY)
