"""Beginning a run in a store, and going on with the one that is there."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from anarchic import wire
from anarchic.core import registry
from anarchic.core.factory import setting_names
from anarchic.core.guard import FACTOR
from anarchic.core.inspection import negative_variance
from anarchic.core.reading import parse_json, reason
from anarchic.core.rule import Rule
from anarchic.core.steps import SgdStep
from anarchic.core.types import Layout, Snapshot, Terms, Vector
from anarchic.errors import AnarchicError, ConfigError
from anarchic.server.commands import Command, commands, rules_after, waiting
from anarchic.server.fold import encode_state
from anarchic.server.log import Log
from anarchic.server.records import StoredRun
from anarchic.server.settings import (
    KeepSettings,
    RuleSettings,
    RunSettings,
    ServerSettings,
    check_memory,
    served_rule,
)
from anarchic.server.store import Store, open_store

APPLY_S = 60.0  # how long a server that starts waits for a command line that applies a command
FIRST_MODEL = "first_model"  # among a run's settings: the digest of the model that it began with
# Also among them, where the file of the first model says so: the policy for buffers, the names of
# those that stay with the workers, and the module that the model was made from, with its seed and
# options.
KEPT = "kept"  # what `run create` was told of keeping, evaluating and ending: see ``kept_as``
ABOUT = ("buffer_policy", "local_buffers", "module", "module_seed", "module_options", KEPT)


def silent(event: str, **facts: object) -> None:
    """A log that keeps nothing."""


@final
@dataclass(frozen=True, eq=False)
class FirstModel:
    """The model with which a run begins."""

    layout: Layout
    params: Vector
    about: Mapping[str, Any] = field(default_factory=dict)  # see ``ABOUT``

    @cached_property
    def digest(self) -> str:
        """The same for the same tensors and numbers, whatever else their file says."""
        facts = layout_settings(self.layout)
        digest = hashlib.sha256(json.dumps(facts).encode())
        digest.update(np.ascontiguousarray(self.params).data)
        return digest.hexdigest()


def first_model(init: str | Path | None) -> FirstModel:
    """The model in the file that ``--init`` names."""
    if init is None:
        raise ConfigError("The store holds no run yet: give a first model with --init.")
    layout, params, metadata = wire.load_model(Path(init))
    if not np.isfinite(params).all():
        raise ConfigError(f"The model {init} has numbers that are not finite: begin with another.")
    negative = negative_variance(layout, params)
    if negative is not None:
        raise ConfigError(
            f"The model {init} has a variance below 0 in {negative[0]} ({negative[1]:g}): begin "
            "with another."
        )
    return FirstModel(layout, params, _about(metadata))


def _about(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What the file of a model says beside its tensors, as settings of a run."""
    policy, names = wire.buffers_of(metadata)
    found: dict[str, Any] = {} if policy is None else {"buffer_policy": policy}
    if policy == "local":
        found["local_buffers"] = list(names)
    if "module" in metadata:
        found["module"] = metadata["module"]
        try:
            found["module_seed"] = int(metadata.get("module_seed", "0"))
            found["module_options"] = dict(parse_json(metadata.get("module_options", "{}")))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"The model's metadata do not say how its module is made ({reason(error)}): write "
                "it again with `anarchic init`."
            ) from error
    return found


def kept_as(run: StoredRun | None, given: RunSettings, *, several: bool = False) -> RunSettings:
    """Settings of a server with those that its run was created with.

    What is given to the server of one run counts before these; of several runs each has its own.
    """
    own: Mapping[str, Any] = {} if run is None else run.settings.get(KEPT, {})
    unknown = own.keys() - KeepSettings.__dataclass_fields__.keys()
    if unknown:
        raise ConfigError(
            f"The run was created with {', '.join(sorted(unknown))}, which this server does not "
            "know: serve it with the version of anarchic that created it, or a later one."
        )
    return replace(given, **{**own, **({} if several else given.chosen)})


def open_kept(
    given: RunSettings, *, several: bool = False, create: bool = True
) -> tuple[Store, RunSettings]:
    """A store, and the settings with which its run is served: see ``kept_as``."""
    store = open_store(given.store, create=create, **given.keeping)
    try:
        own = kept_as(store.run(), given, several=several)
    except BaseException:
        store.close()
        raise
    if own.keeping == given.keeping:
        return store, own
    store.close()
    return open_store(own.store, create=False, **own.keeping), own


def open_run(
    store: Store, rules: Mapping[str, Any], init: str | Path | None,
    kept: Mapping[str, Any] | None = None,
) -> StoredRun:  # fmt: skip
    """Go on with the store's run, which must have been begun with ``rules``, or begin one.

    One that is begun records what is ``kept`` of it, for all servers to come.
    """
    run = store.run()
    if run is None:
        first = first_model(init)
        about = {**first.about, **({KEPT: dict(kept)} if kept else {})}
        try:
            return begin(store, RuleSettings(**rules), first.layout, first.params, about)
        except ConfigError:
            run = store.run()  # another server may have begun it at the same moment
            if run is None:
                raise
    check_same(store, run, rules, init)
    return run


def check_same(
    store: Store, run: StoredRun, rules: Mapping[str, Any], init: str | Path | None
) -> None:
    """Refuse to go on with a run that was begun with other settings or another model.

    A supervisor starts a server again with the same command, so the same model is no error, nor
    are settings that an operator has changed since; nor those that hold instead.
    """
    there, now = _as_begun(run), asdict(rules_after(stored_rules(run), commands(store)))
    unsaid = (("guard", None), ("m", None))
    differing = [
        f"{name} is {now.get(name)!r} there and {value!r} here"
        for name, value in rules.items()
        if value not in (there.get(name), now.get(name)) and (name, value) not in unsaid
    ]
    if differing:
        raise ConfigError(
            f"The store holds a run with other settings: {'; '.join(differing)}. Leave them out to "
            "go on with it, or choose another store."
        )
    if init is not None and (why := _why_other(store, run, init)):
        raise ConfigError(
            f"The store already holds run {run.settings['run']} at version {run.version}, and "
            f"{why}: leave out --init to go on with that run, or choose another --store."
        )


def _why_other(store: Store, run: StoredRun, init: str | Path) -> str | None:
    """Why a file cannot be the model with which a run began; None if it is."""
    try:
        given = first_model(init)
    except AnarchicError:
        return f"--init {init} is missing or is no model"
    stored = run.settings.get(FIRST_MODEL)
    if stored is None:  # begun before runs recorded it
        kept = store.model(0)
        if kept is None:
            return f"its first model is no longer kept, to compare --init {init} with"
        params = wire.decode_snapshot(kept)[1].params
        stored = FirstModel(stored_layout(run), params).digest
    if given.digest != stored:
        return f"--init {init} is not the model that it began with"
    policies = [about.get("buffer_policy") for about in (run.settings, given.about)]
    if policies[0] != policies[1]:
        return f"its policy for buffers is {policies[0]}, that of --init {init} is {policies[1]}"
    return None


def check_alone(
    store: Store, wait_s: float = 3.0, *, apply_s: float = APPLY_S, log: Log = silent
) -> None:
    """Refuse to be the second server of a store that cannot be shared.

    A command line that applies a command has the store too, for as long as that takes: it is
    waited for, ``apply_s`` at most.
    """
    begun = time.monotonic()
    until, told = begun + wait_s, False
    while not store.claim():
        now, commanded = time.monotonic(), waiting(store)
        if commanded and not told:
            told, first = True, commanded[0]
            log(
                "waits_for_command", number=first.number, kind=first.kind, issued_by=first.issued_by
            )
        if commanded:
            until = max(until, min(now + wait_s, begun + apply_s))
        if now > until:
            raise ConfigError(_taken(commanded[0] if commanded else None, now - begun))
        time.sleep(0.1)


def _taken(command: Command | None, waited_s: float) -> str:
    """Why a server cannot have the store."""
    if command is None:
        return (
            "Another server has this store open: stop it first, or share the run between servers "
            "with PostgreSQL."
        )
    return (
        f"Another process has had this store open for {waited_s:.0f} s, and command "
        f"{command.number} ({command.kind}, by {command.issued_by}) is not applied yet. If a "
        "command line applies it, wait until 'anarchic log' says what became of it and start "
        "again; if a server does, this one is not needed."
    )


def check_enrolment(settings: ServerSettings, *, tokens: bool) -> None:
    """Refuse a server to which nobody may push."""
    if not (settings.open_enrolment or tokens):
        raise ConfigError(
            "Nobody may push: add workers with 'anarchic token add NAME --store ...', or say "
            "--open-enrolment."
        )


def check_begin(
    rules: Mapping[str, Any], init: str | Path | None, settings: ServerSettings
) -> FirstModel:
    """Before a run is begun: its settings could not be corrected afterwards."""
    served_rule(RuleSettings(**rules))
    check_memory(RuleSettings(**rules), settings)
    return first_model(init)


def begin(
    store: Store,
    rules: RuleSettings,
    layout: Layout,
    params: Vector,
    about: Mapping[str, Any] | None = None,
) -> StoredRun:
    """Start a run in an empty store; unless the settings say otherwise, with a guard."""
    rules = replace(rules, guard=FACTOR if rules.guard is None else rules.guard)
    rule = served_rule(rules, layout)
    if "m" in setting_names(registry.find("rules", rules.rule)):
        rules = replace(rules, m=rule.m)  # as it holds, whatever becomes of the default
    state = rule.init(params)
    own = {"run": secrets.token_hex(8), FIRST_MODEL: FirstModel(layout, params).digest}
    settings = {**asdict(rules), **own, **layout_settings(layout), **(about or {})}
    first = Snapshot(0, state.params, state.extras, terms=_terms(rules.rule, rule, settings))
    body = wire.encode_snapshot(layout, first, settings["run"])
    return store.create(settings, body, encode_state(rule, state, layout))


def stored_rules(run: StoredRun) -> RuleSettings:
    """The rule with which a run was begun."""
    facts = ("run", FIRST_MODEL, *ABOUT, *Layout.__dataclass_fields__)
    told = {name: value for name, value in _as_begun(run).items() if name not in facts}
    unknown = told.keys() - RuleSettings.__dataclass_fields__.keys()
    if unknown:
        raise ConfigError(
            f"The run was begun with {', '.join(sorted(unknown))}, which this server does not "
            "know: serve it with the version of anarchic that began it, or a later one."
        )
    return RuleSettings(**told)


def stored_terms(run: StoredRun, rule: Rule[Any]) -> Terms:
    """What workers of a run are told about what becomes of their updates."""
    return _terms(run.settings["rule"], rule, run.settings)


def _terms(name: str, rule: Rule[Any], settings: Mapping[str, Any]) -> Terms:
    rule = rule.innermost  # the wrappers have no rate of their own
    # A worker takes it as the length of a step, which Adam's rate and the like are not.
    plain = getattr(rule, "step", SgdStep()) == SgdStep()
    rate = getattr(rule, "server_lr", None) if plain else None
    averaged = tuple(settings.get("buffers", ()))
    policy = settings.get("buffer_policy") or ("average" if averaged else None)
    names = averaged or tuple(settings.get("local_buffers", ()))
    return Terms(name, None if rate is None else float(rate), policy, names)


def layout_settings(layout: Layout) -> dict[str, Any]:
    """A layout as it is recorded; one without buffers as before there were any."""
    return {name: value for name, value in asdict(layout).items() if name != "buffers" or value}


def _as_begun(run: StoredRun) -> dict[str, Any]:
    """Its settings; a run that was begun before there was a guard has none."""
    return {"guard": 0.0, **run.settings}


def stored_layout(run: StoredRun) -> Layout:
    """The layout of a run's model."""
    names, shapes, dtypes = (run.settings[name] for name in ("names", "shapes", "dtypes"))
    buffers = tuple(run.settings.get("buffers", ()))
    return Layout(tuple(names), tuple(map(tuple, shapes)), tuple(dtypes), buffers)
