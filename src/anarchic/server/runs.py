"""Beginning a run in a store, and going on with the one that is there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anarchic import wire
from anarchic.core.types import Layout, Snapshot, Vector
from anarchic.errors import ConfigError
from anarchic.server.fold import encode_state
from anarchic.server.records import StoredRun
from anarchic.server.settings import RuleSettings, ServerSettings, check_memory, served_rule
from anarchic.server.store import Store


def open_run(store: Store, rules: Mapping[str, Any], init: str | Path | None) -> StoredRun:
    """Go on with the store's run, which must have been begun with ``rules``, or begin one."""
    run = store.run()
    if run is None:
        if init is None:
            raise ConfigError("The store holds no run yet: give a first model with --init.")
        layout, params, _ = wire.load_model(Path(init))
        try:
            return begin(store, RuleSettings(**rules), layout, params)
        except ConfigError:
            run = store.run()  # another server may have begun it at the same moment
            if run is None:
                raise
    differing = [
        f"{name} is {run.settings.get(name)!r} there and {value!r} here"
        for name, value in rules.items()
        if run.settings.get(name) != value
    ]
    if differing:
        raise ConfigError(
            f"The store holds a run with other settings: {'; '.join(differing)}. Leave them out to "
            "go on with it, or choose another store."
        )
    return run


def check_alone(store: Store, wait_s: float = 3.0) -> None:
    """Refuse to be the second server of a store that cannot be shared."""
    until = time.monotonic() + wait_s
    while not store.claim():
        if time.monotonic() > until:
            raise ConfigError(
                "Another server has this store open: stop it first, or share the run between "
                "servers with PostgreSQL."
            )
        time.sleep(0.1)


def check_enrolment(store: Store, settings: ServerSettings, given: Mapping[str, Any]) -> None:
    """Before a run is begun: its settings could not be corrected afterwards."""
    if not (settings.open_enrolment or store.accounts()):
        raise ConfigError(
            "Nobody may push: add workers with 'anarchic token add NAME --store ...', or say "
            "--open-enrolment."
        )
    if settings.open_enrolment and store.run() is None:
        check_memory(RuleSettings(**given), settings)


def begin(store: Store, rules: RuleSettings, layout: Layout, params: Vector) -> StoredRun:
    """Start a run in an empty store."""
    rule = served_rule(rules)
    state = rule.init(params)
    first = Snapshot(0, state.params, state.extras)
    settings = {**asdict(rules), "run": secrets.token_hex(8), **asdict(layout)}
    body = wire.encode_snapshot(layout, first, settings["run"])
    return store.create(settings, body, encode_state(rule, state))


def stored_rules(run: StoredRun) -> RuleSettings:
    """The rule with which a run was begun."""
    facts = ("run", *Layout.__dataclass_fields__)
    told = {name: value for name, value in run.settings.items() if name not in facts}
    unknown = told.keys() - RuleSettings.__dataclass_fields__.keys()
    if unknown:
        raise ConfigError(
            f"The run was begun with {', '.join(sorted(unknown))}, which this server does not "
            "know: serve it with the version of anarchic that began it, or a later one."
        )
    return RuleSettings(**told)


def stored_layout(run: StoredRun) -> Layout:
    """The layout of a run's model."""
    names, shapes, dtypes = (run.settings[name] for name in ("names", "shapes", "dtypes"))
    return Layout(tuple(names), tuple(map(tuple, shapes)), tuple(dtypes))
