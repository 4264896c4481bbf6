"""Look whether a server would start and could go on, without starting it or writing anything."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from sqlalchemy import func, select

from anarchic import wire
from anarchic.core import registry
from anarchic.core.findings import Doubt, Finding, look
from anarchic.core.inspection import concerns
from anarchic.core.types import Layout, Snapshot
from anarchic.errors import ConfigError, StoreUnavailable
from anarchic.server import tables as t
from anarchic.server.accounts import accounts
from anarchic.server.callbacks import callback_names
from anarchic.server.check_address import check_address, check_certificates
from anarchic.server.commands import Command, commands, condition, end_of, rules_after
from anarchic.server.database import exists, path_of
from anarchic.server.evaluate import judge_once, judging
from anarchic.server.filelock import is_locked
from anarchic.server.fold import decode_state
from anarchic.server.keeping import check_metrics
from anarchic.server.looking import looking
from anarchic.server.memory import check_room
from anarchic.server.places import places_at
from anarchic.server.records import StoredRun
from anarchic.server.runs import (
    check_begin,
    check_enrolment,
    check_same,
    kept_as,
    stored_layout,
    stored_rules,
)
from anarchic.server.serve import holds_several
from anarchic.server.settings import (
    Address,
    RuleSettings,
    RunSettings,
    ServerSettings,
    check_memory,
    given_rules,
    served_rule,
    waits,
)
from anarchic.server.sqlite import check_kind_of_file
from anarchic.server.store import Store

EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)  # no clock that was set says less
SKEW_S = 5.0  # between this machine and its database
FEW_VERSIONS, FEWEST_VERSIONS = 20, 2  # for which there is room
_HOT = bytes.fromhex("d9d505f920a163d7")  # how a journal begins that may have to be rolled back


def check(
    run: RunSettings,
    *,
    rules: RuleSettings | Mapping[str, Any] | None = None,
    settings: ServerSettings | None = None,
    address: Address | None = None,
) -> Iterator[Finding]:
    """What would keep ``anarchic.server.run`` with the same arguments from serving."""
    address = address or Address()
    yield look("address", lambda: check_address(address))
    yield look("tls", lambda: check_certificates(address))
    settings = settings or ServerSettings()
    if holds_several(run):
        yield from _several(run, settings)
        return
    with ExitStack() as stack:
        seen = _Seen(run, given_rules(rules), settings, stack)
        yield look("store", seen.open)
        if seen.usable:
            yield look("run", seen.run)
            yield look("tokens", seen.tokens)
            yield look("disk", seen.disk)
            yield look("memory", seen.memory)
            yield look("evaluate", seen.evaluate)
        yield look("callback", lambda: _callback(run))
        yield look("clock", seen.clock)


def _several(run: RunSettings, settings: ServerSettings) -> Iterator[Finding]:
    """Every run of a directory or database."""
    places: dict[str, str] = {}

    def names() -> str:
        with closing(places_at(run.store)) as found:
            places.update((name, found.place(name)) for name in found.names())
        if not places:
            raise Doubt("There is no run yet: begin one with 'anarchic run create NAME ...'.")
        return f"There are {', '.join(places)}."

    yield look("runs", names)
    for name, place in places.items():
        with ExitStack() as stack:
            seen = _Seen(replace(run, store=place, runs=False), {}, settings, stack, several=True)
            yield replace(look("store", seen.open), check=f"{name}: store")
            if seen.usable:
                yield replace(_unless_ended(look("run", seen.run), seen), check=f"{name}: run")
                if seen.evaluates:
                    yield replace(look("evaluate", seen.evaluate), check=f"{name}: evaluate")
                if not seen.ended:
                    yield replace(look("tokens", seen.tokens), check=f"{name}: tokens")
                yield replace(look("disk", seen.disk), check=f"{name}: disk")
                yield replace(look("clock", seen.clock), check=f"{name}: clock")


def _unless_ended(finding: Finding, seen: _Seen) -> Finding:
    """One of several runs may have ended: the others are served all the same."""
    return replace(finding, status="warning") if seen.ended else finding


def _callback(run: RunSettings) -> str:
    if run.callback is None:
        return "None is asked for."
    return f"{', '.join(callback_names(run.callback))} can be loaded."


@final
class _Seen:
    """The store, and what is known of it as the checks go on."""

    def __init__(
        self, run: RunSettings, rules: dict[str, Any], settings: ServerSettings, stack: ExitStack,
        *, several: bool = False,
    ) -> None:  # fmt: skip
        self._several = several
        self._run, self._rules, self._settings, self._stack = run, rules, settings, stack
        self._path = path_of(run.store)
        self._store: Store | None = None
        self._stored: StoredRun | None = None
        self._model: tuple[Layout, int, Mapping[str, Any]] | None = None  # layout, bytes, about
        self._newest: Snapshot | None = None
        self._m = 1
        self.usable = False  # looking further makes sense
        self.ended = False

    def open(self) -> str:
        """The store with the checksums of what a server loads at its start; or a place for one."""
        if self._path is not None:
            _check_writable(self._path)
        if not exists(self._run.store):
            if self._several:  # a link that leads nowhere, or it was taken away a moment ago
                raise StoreUnavailable(f"There is no store {self._path}: its run is not served.")
            self.usable = True
            return f"{self._path} is new; a run begins in it."
        if self._path is not None:
            check_kind_of_file(self._path)
        busy = self._path is not None and is_locked(self._path)
        try:
            store = self._store = self._stack.enter_context(looking(self._run.store))
        except ConfigError:
            if self._path is None:  # PostgreSQL without our tables
                self.usable = True
                return "The database answers; a run begins in it."
            raise
        except StoreUnavailable as error:
            if self._path is not None and _is_hot(self._path):
                raise Doubt(
                    f"{self._path} was not closed cleanly. A server repairs it when it starts; "
                    "only then can it be looked at."
                ) from error
            raise
        self._stored, self.usable = store.run(), True
        if self._stored is not None:
            store.standing()  # raises if a checksum does not match
        if self._path is None:
            _check_permitted(store)
        if busy:
            raise StoreUnavailable(
                f"A server has {self._path} open: stop it before you start another, or share the "
                "run between servers with PostgreSQL."
            )
        if self._stored is None:
            return "It holds no run yet; one begins in it."
        return f"Run {self._stored.settings['run']} at version {self._stored.version}, undamaged."

    @property
    def evaluates(self) -> bool:
        return self._run.evaluate is not None

    def run(self) -> str:
        """The rule and the model, or those that a run would begin with."""
        if self._store is None or self._stored is None:
            first = check_begin(self._rules, self._run.init, self._settings)
            self._model = first.layout, 4 * first.layout.dim, first.about
            self._newest = Snapshot(0, first.params, layout=first.layout)
            begun = served_rule(RuleSettings(**self._rules))
            self._m = begun.m
            if doubts := [
                *concerns(first.layout, str(self._run.init)),
                *filter(None, [waits(begun)]),
            ]:
                raise Doubt(" ".join(doubts))
            rule = self._rules.get("rule", RuleSettings.rule)
            return f"It begins with {self._run.init}: {_about(first.layout, rule, self._m)}."
        layout, standing = stored_layout(self._stored), self._store.standing()
        self._model = layout, len(standing.model), self._stored.settings
        check_same(self._store, self._stored, self._rules, self._run.init)
        self._run = kept_as(self._stored, self._run, several=self._several)
        known = commands(self._store)
        rules = rules_after(stored_rules(self._stored), known)
        check_memory(rules, self._settings)
        self._newest, rule = wire.decode_snapshot(standing.model)[1], served_rule(rules, layout)
        decode_state(rule, self._newest, standing.state, standing.rows)
        self._m = rule.m
        told = f"It goes on with {_about(layout, rules.rule, rule.m)}."
        self.ended = end_of(known) is not None
        _check_open(known, told)
        if doubt := waits(rule):
            raise Doubt(f"{told} {doubt}")
        return told

    def tokens(self) -> str:
        known = {} if self._store is None else accounts(self._store)
        now_s = time.time()
        valid = [
            account
            for account in known.values()
            if not account.revoked
            and "push" in account.rights.split(",")
            and (account.expires_s is None or account.expires_s > now_s)
        ]
        check_enrolment(self._settings, tokens=bool(known))
        if self._settings.open_enrolment:
            return f"Anybody may push (--open-enrolment); {len(valid)} workers have valid tokens."
        if not valid:
            raise ConfigError(
                f"None of {len(known)} tokens lets a worker push: they were revoked, have expired "
                "or have other rights. Add one with 'anarchic token add NAME --store ...'."
            )
        return f"{len(valid)} of {len(known)} tokens let a worker push."

    def disk(self) -> str:
        if self._path is None:
            return "Not looked at: the database's disk is not seen from here."
        if self._model is None:
            return "Not looked at: the size of the model is not known."
        layout, size, _ = self._model
        free = shutil.disk_usage(_folder(self._path)).free
        versions = free // (3 * size + self._m * 4 * layout.dim)  # model, state, journal, updates
        told = f"{free / 2**30:,.1f} GiB are free, enough for about {versions:,} versions"
        if versions < FEWEST_VERSIONS:
            raise StoreUnavailable(f"{told}: free some space, or choose another disk.")
        if versions < FEW_VERSIONS:
            raise Doubt(f"{told}: free some space.")
        return f"{told}."

    def memory(self) -> str:
        if self._model is None:
            return "Not looked at: the size of the model is not known."
        return check_room(self._model[1], self._settings.limits)

    def evaluate(self) -> str:
        """The judge, by what it says of the newest model: it must have the metrics asked for."""
        if self._run.evaluate is not None:
            registry.load(self._run.evaluate)
        layout, _, about = self._model or (None, 0, {})
        judge = None if layout is None else judging(self._run, about, layout)
        if self._run.evaluate is None:
            return "Not asked for."
        if judge is None or self._newest is None:
            return f"{self._run.evaluate} is there."
        begun_s = time.monotonic()
        found = judge_once(judge, self._newest)
        took_s = time.monotonic() - begun_s
        check_metrics(self._run.best, self._run.goal, found)
        told = ", ".join(f"{name} {value:.3g}" for name, value in found.items())
        return f"{judge.judge} says {told or 'nothing'} after {took_s:.1f} s."

    def clock(self) -> str:
        now = datetime.now(UTC)
        told = f"This machine says {now:%Y-%m-%d %H:%M:%S} UTC"
        if now < EARLIEST:
            raise ConfigError(f"{told}: set its clock.")
        if self._store is None:
            return f"{told}."
        with self._store.reading() as connection:
            last = select(t.updates.c.received_s).order_by(t.updates.c.seq.desc()).limit(1)
            newest_s = connection.execute(last).scalar()
            theirs = None
            if self._path is None:
                theirs = connection.execute(select(func.now())).scalar()
        if newest_s is not None and newest_s > now.timestamp() + SKEW_S:
            raise Doubt(
                f"{told}, but the newest update came {newest_s - now.timestamp():,.0f} s later: "
                "set the clock, or that of the server which took it."
            )
        if isinstance(theirs, datetime) and abs(skew := (theirs - now).total_seconds()) > SKEW_S:
            raise Doubt(f"{told}, its database differs by {skew:,.0f} s: set the clocks.")
        return f"{told}."


def _check_open(known: list[Command], told: str) -> None:
    """Say so if the run takes no updates."""
    if (by := end_of(known)) is not None:
        raise ConfigError(
            f"The run has ended (command {by.number}, by {by.issued_by}): a server of it takes no "
            "more updates and only gives the model away. Begin a run in another store to go on."
        )
    if condition(known) == "paused":
        raise Doubt(f"{told} It is paused: 'anarchic resume STORE' lets it take updates again.")


def _about(layout: Layout, rule: str, m: int) -> str:
    return f"{layout.dim:,} numbers in {len(layout.names)} tensors, rule {rule}, m={m}"


def _check_writable(path: Path) -> None:
    folder = _folder(path)
    if not folder.is_dir():
        raise StoreUnavailable(f"There is no directory {folder}: create it.")
    for place in (path, folder) if path.exists() else (folder,):  # a journal lies beside the store
        if not os.access(place, os.W_OK | (os.X_OK if place is folder else 0)):
            raise StoreUnavailable(
                f"{place} cannot be written to by this user: change its owner or permissions."
            )


def _check_permitted(store: Store) -> None:
    """Whether PostgreSQL takes writes at all, and from this user."""
    with store.reading() as connection:
        if connection.execute(select(func.pg_is_in_recovery())).scalar():
            raise StoreUnavailable("The database is a standby: give the address of the primary.")
        if not connection.execute(select(func.has_table_privilege("updates", "INSERT"))).scalar():
            raise StoreUnavailable("The database lets this user read only: grant it the tables.")


def _folder(path: Path) -> Path:
    return Path(os.path.realpath(path)).parent


def _is_hot(path: Path) -> bool:
    try:
        with open(f"{os.path.realpath(path)}-journal", "rb") as journal:
            return journal.read(len(_HOT)) == _HOT
    except OSError:
        return False
