"""``anarchic set``: change settings of a run's rule."""

from __future__ import annotations

from typing import Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.steering import NoWait, Where, give
from anarchic.errors import ConfigError

EPILOG = examples("anarchic set run.db server_lr=0.5 m=8", "anarchic set run.db clip=none")


def set(
    store: Where,
    settings: Annotated[
        list[str],
        typer.Argument(
            help="Of m, server_lr, staleness_power, clip, guard, expire_after and cap; none takes "
            "staleness_power, clip or expire_after away.",
            metavar="NAME=VALUE...",
            show_default=False,
        ),
    ],
    no_wait: NoWait = False,
) -> None:
    """Change settings of the rule, such as m=8 or server_lr=0.5, from the newest version on.

    Updates that wait for a step are folded with the new settings. The rule itself stays.
    """
    pairs: dict[str, str] = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"A setting is given as NAME=VALUE, such as m=8; got {each!r}.")
        if name in pairs:
            raise ConfigError(f"{name} is given twice.")
        pairs[name] = value
    give(store, "set", pairs, no_wait=no_wait)
