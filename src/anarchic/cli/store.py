"""``anarchic store``: upgrade, back up, check and compact the store of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.errors import ConfigError, OtherSchema

app = typer.Typer(
    no_args_is_help=True,
    help="Look after the store of a run: upgrade, back up, check and compact it.",
    epilog=examples(
        "anarchic store backup run.db --out run-monday.db",
        "anarchic store check run.db",
        "anarchic store upgrade run.db",
        "anarchic store compact run.db --before 100000",
    ),
)
Where = Annotated[
    str, typer.Argument(help="The store: a file, or postgresql://...", metavar="STORE")
]


@app.command(epilog=examples("anarchic store upgrade run.db"))
def upgrade(
    store: Where,
    no_backup: Annotated[
        bool, typer.Option("--no-backup", help="Do not copy the file (SQLite) before.")
    ] = False,
) -> None:
    """Bring a store that an earlier version of anarchic wrote to the tables of this one.

    Stop its servers first. A file is copied before, beside itself; back up PostgreSQL with pg_dump.
    It happens in one transaction: whole, or not at all.
    """
    from anarchic.server.migrations import upgrade_store

    done = upgrade_store(store, backup=not no_backup)
    if done.before == done.after:
        typer.echo(f"Nothing to do: the store has schema {done.after} already.")
        return
    typer.echo(f"Upgraded from schema {done.before} to schema {done.after}.")
    if done.backup is not None:
        typer.echo(f"The store as it was is in {done.backup}; remove it when all is well.")


@app.command(epilog=examples("anarchic store backup run.db --out run-monday.db"))
def backup(
    store: Where,
    out: Annotated[Path, typer.Option(help="Where the copy goes; a new file.", metavar="FILE")],
) -> None:
    """Copy a store in SQLite while its server runs; its writing waits while the file is read."""
    from anarchic.server.backup import backup_store

    copy = backup_store(store, out)
    typer.echo(f"Copied to {copy} ({copy.stat().st_size / 1e6:.1f} MB).")


@app.command(epilog=examples("anarchic store compact run.db --before 100000"))
def compact(
    store: Where,
    before: Annotated[
        int, typer.Option(help="Compact what made versions below this one.", metavar="VERSION")
    ],
    drop_payloads: Annotated[
        bool,
        typer.Option(
            "--drop-payloads", help="Also where payloads are kept; there is no replay afterwards."
        ),
    ] = False,
) -> None:
    """Delete old rows of the trace and thin old evaluations; servers may run meanwhile.

    Updates that build on versions of that time are refused from then on, for nobody could say
    whether they were accepted before. Versions of the model stay. The file becomes smaller if no
    server runs.
    """
    from anarchic.server.compact import compact_store

    done = compact_store(store, before=before, drop_payloads=drop_payloads)
    typer.echo(
        f"Deleted {done.updates} updates from the trace and {done.evaluations} evaluations. "
        f"Updates must build on version {done.base_from} or a later one."
    )
    if done.returned_bytes is not None:
        typer.echo(f"The file is {done.returned_bytes / 1e6:.1f} MB smaller.")
    elif done.free_bytes:
        typer.echo(
            f"{done.free_bytes / 1e6:.1f} MB in the file are free for what comes. Run this again "
            "while no server runs to make the file smaller."
        )
    elif done.free_bytes is None and done.updates:
        typer.echo("PostgreSQL reuses the room; VACUUM (FULL) updates, payloads gives it back.")


@app.command(epilog=examples("anarchic store check run.db"))
def check(store: Where) -> None:
    """Look for damage: seals, digests, orders, counts and indices. Exits with 1 if there is any.

    Servers may run meanwhile. Nothing is changed. With exit code 2 nothing was looked at: there is
    no such store, or another version of anarchic wrote it.
    """
    from anarchic.server.checkup import MOST, check_store

    try:
        found = check_store(store)
    except OtherSchema as error:
        raise ConfigError(f"Nothing was looked at. {error}") from error
    looked = ", ".join(f"{count} {what}" for what, count in found.looked_at.items())
    typer.echo(f"Looked at {looked or 'what could be opened'}.")
    if not found.damaged:
        typer.echo("Everything is as it was written.")
        return
    told = list(dict.fromkeys(damage.what for damage in found.damaged))
    for what in told[:MOST]:
        typer.echo(f"Damaged: {what}")
    if len(told) > MOST:
        typer.echo(f"And {len(told) - MOST} more.")
    lost = list(dict.fromkeys(damage.costs for damage in found.damaged))
    typer.echo(f"Affected: {', '.join(lost)}. Still works: {', '.join(found.works) or 'nothing'}.")
    raise typer.Exit(1)
