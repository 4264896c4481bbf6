"""``anarchic rollback``: go back to an earlier version, or take a worker's updates out."""

from __future__ import annotations

from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.steering import NoWait, Where, Withdrawn, give

EPILOG = examples(
    "anarchic rollback run.db --to 40",
    "anarchic rollback run.db --without eve",
    "anarchic rollback run.db --to 40 --withdrawn --no-wait  # also if it was rolled back before",
)


def rollback(
    store: Where,
    to: Annotated[
        int | None,
        typer.Option(
            help="The version to go back to. [dim](default: the newest, with --without)[/dim]",
            show_default=False,
            metavar="N",
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            help="Fold everything again without the updates of this worker, which needs a server "
            "with --keep-payloads. [dim](default: leave nobody out)[/dim]",
            show_default=False,
            metavar="WORKER",
        ),
    ] = None,
    withdrawn: Withdrawn = False,
    no_wait: NoWait = False,
) -> None:
    """Go back to an earlier version, or undo all that one worker has done.

    The result is published as the next version: version numbers never go back. Versions that are
    undone are withdrawn: updates that build on them are dropped, and workers pull again.
    With --without alone, updates that others computed on versions with this worker's influence
    still count. If it spoilt the model, add --to with the first version that has its updates.
    With --to alone, the rule starts afresh from the parameters of that version.
    To undo a rollback, go back to a version that it withdrew, with --withdrawn.
    """
    meant = {"withdrawn": True} if withdrawn else {}
    give(store, "rollback", {"to": to, "without": without, **meant}, no_wait=no_wait)
    if without is not None:
        place = "..." if "://" in store else store  # an address may have a password
        told = f"anarchic token revoke {without} --store {place}"
        typer.echo(f"To keep it out, revoke its token: {told}")
