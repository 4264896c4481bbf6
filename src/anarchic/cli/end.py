"""``anarchic end``: end a run."""

from __future__ import annotations

from anarchic.cli.options import examples
from anarchic.cli.steering import NoWait, Where, give

EPILOG = examples("anarchic end run.db")


def end(store: Where, no_wait: NoWait = False) -> None:
    """End the run: what was accepted makes a last version, and updates are refused from then on.

    Workers are told so, and stop with exit code 0. The model can still be pulled. The end is final.
    """
    give(store, "end", no_wait=no_wait)
