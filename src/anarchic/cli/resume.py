"""``anarchic resume``: take updates again."""

from __future__ import annotations

from anarchic.cli.options import examples
from anarchic.cli.steering import NoWait, Where, give

EPILOG = examples("anarchic resume run.db")


def resume(store: Where, no_wait: NoWait = False) -> None:
    """Take updates again, after a pause."""
    give(store, "resume", no_wait=no_wait)
