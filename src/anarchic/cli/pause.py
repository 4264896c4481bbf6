"""``anarchic pause``: refuse updates for a while."""

from __future__ import annotations

from anarchic.cli.options import examples
from anarchic.cli.steering import NoWait, Where, give

EPILOG = examples("anarchic pause run.db")


def pause(store: Where, no_wait: NoWait = False) -> None:
    """Refuse updates and take no step until the run is resumed.

    Workers keep their updates and send them again later. The model can still be pulled.
    """
    give(store, "pause", no_wait=no_wait)
