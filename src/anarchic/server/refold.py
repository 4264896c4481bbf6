"""Folding a recorded run again, up to a version, with or without the updates of some workers.

A replay, the parameters of an old version, and a rollback all come from here, so they agree. It
goes through the versions as they were made: of updates, or by a command of an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, select

from anarchic import wire
from anarchic.core.rule import Rule
from anarchic.core.saving import pack, unpack
from anarchic.core.types import Layout, Snapshot
from anarchic.errors import ConfigError, RunError, StoreCorrupt, UpdateRefused
from anarchic.server import tables as t
from anarchic.server.commands import Command, commands, rules_after
from anarchic.server.records import Folded, StoredRun
from anarchic.server.runs import stored_layout, stored_rules
from anarchic.server.settings import served_rule
from anarchic.server.store import Store

NEEDS = "only a run whose server had --keep-payloads from the beginning can be folded again"
_U = t.updates.c


@dataclass(frozen=True)
class Refolded:
    """The rule and its state right after a version, and how many updates were folded for it."""

    rule: Rule[Any]
    state: Any
    updates: int


def refold(
    store: Store,
    *,
    until: int | None = None,
    without: Iterable[str] = (),
    progress: Callable[[int], None] = lambda count: None,
) -> Refolded:
    """Fold the recorded updates in their order, from the first model up to version ``until``.

    Without the updates of some workers, each version is made of the others' that it was made of;
    one that was made of theirs alone is the version before it. Version numbers stay as they were,
    for the other updates name them. ``RunError`` says what the store no longer has.
    """
    run = store.run()
    if run is None:
        raise RunError("The store has no run that could be replayed.")
    last = run.version if until is None else until
    if not 0 <= last <= run.version:
        raise ConfigError(f"There is no version {last}: they go from 0 to {run.version}.")
    if why := why_not(store, run):
        raise RunError(f"The updates cannot be folded again: {why}.")
    first = store.model(0)
    assert first is not None, "it was just looked for"
    known = [c for c in commands(store) if c.version is not None]
    walk = _Walk(store, run, known, progress)
    rows = (row for row in store.trace() if row.version)  # the others wait, or were set aside
    row = next(rows, None)
    for stretch in stretches(known, last, frozenset(without)):
        walk.begin(stretch, wire.decode_snapshot(first)[1])
        while row is not None and (row.version or 0) <= stretch.last:
            walk.fold(row)
            row = next(rows, None)
        walk.reach(stretch.last)
    return Refolded(walk.rule, walk.state, walk.updates)


@dataclass(frozen=True)
class Stretch:
    """Versions of which each follows from the one before by updates, without those of some workers.

    ``begun_by`` is the rollback that made the first of them of the last version of the stretch
    before; None: it is the first model.
    """

    first: int
    last: int
    without: frozenset[str]
    begun_by: Command | None


def stretches(known: Iterable[Command], last: int, without: frozenset[str]) -> list[Stretch]:
    """What version ``last`` is made of, the oldest first.

    Found from its end: what the newest rollback before it withdrew counts in nothing that comes
    later. So each version is looked at once, however many rollbacks there were.
    """
    found: list[Stretch] = []
    rollbacks = [c for c in known if c.kind == "rollback" and c.version is not None]
    for command in sorted(rollbacks, key=lambda c: c.version or 0, reverse=True):
        assert command.version is not None
        if command.version >= last:  # it made a later version
            continue
        found.append(Stretch(command.version + 1, last, without, command))
        to, worker = command.arguments["to"], command.arguments["without"]
        last = command.version if to is None else to
        without |= set() if worker is None else {worker}
    return [Stretch(0, last, without, None), *reversed(found)]


def counted_in(stretch: Stretch) -> ColumnElement[bool]:
    """Of the table of updates: those that a stretch is made of."""
    ours = (_U.version > stretch.first) & (_U.version <= stretch.last)
    return ours & _U.worker.not_in(stretch.without) if stretch.without else ours


def why_not(store: Store, run: StoredRun) -> str | None:
    """Why updates cannot be folded again, as the end of a sentence; None if they can."""
    with store.reading() as connection:
        there = select(t.models.c.version).where(t.models.c.version == 0)
        has_model = connection.execute(there).scalar() is not None
        both = t.updates.join(t.payloads, t.payloads.c.seq == _U.seq)
        first = select(_U.seq).select_from(both).where(_U.order == 0)
        has_first = not run.folded or connection.execute(first).scalar() is not None
    if run.keep_payloads and has_model and run.trace_from:
        return (
            f"the trace was compacted, so its first {run.trace_from} updates are gone; a backup "
            "from before has them"
        )
    return None if run.keep_payloads and has_model and has_first else NEEDS


class _Walk:
    """Goes from version to version as the run did, but for what was withdrawn."""

    def __init__(
        self, store: Store, run: StoredRun, known: list[Command], progress: Callable[[int], None]
    ) -> None:
        self._store, self._progress = store, progress
        self._layout: Layout = stored_layout(run)
        self._begun = stored_rules(run)
        self._revoked = store.revoked()
        self._sets = [command for command in known if command.kind == "set"]
        self._set_after = {command.version for command in self._sets}
        self.state: Any = None
        self._settled = -1  # the version after which commands were looked at
        self.updates = 0  # that the state is made of

    def begin(self, stretch: Stretch, first: Snapshot) -> None:
        """Make the first version of a stretch."""
        self._without, self._first = stretch.without, stretch.first
        self.rule = self._rule_after(stretch.first - 1)
        command = stretch.begun_by
        if command is None:
            self.state = self.rule.init(first.params)
        elif command.arguments["without"] is None:
            extras = {name: vector.copy() for name, vector in self.state.extras.items()}
            snapshot = Snapshot(self.state.version, self.state.params.copy(), extras)
            self.state = afresh(self.rule, snapshot, stretch.first)
        else:
            self.state = renumbered(self.rule, self.state, stretch.first)

    def _rule_after(self, version: int) -> Rule[Any]:
        past = (c for c in self._sets if c.version is not None and c.version <= version)
        return served_rule(rules_after(self._begun, past), self._layout)

    def fold(self, row: Folded) -> None:
        """Fold one update, having made all versions before its own."""
        assert row.version is not None
        if row.version <= self._first:  # of a version that was withdrawn
            return
        self.reach(row.version - 1)
        if row.worker in self._without or self.state.version >= row.version:
            return
        body = self._store.body(row.seq)
        if body is None:
            raise RunError(
                f"Update {row.seq} of worker {row.worker!r} is no longer stored: {NEEDS}."
            )
        names = frozenset(self.state.extras)
        update = wire.decode_update(body, self._layout, extras=names, worker=row.worker).update
        with suppress(UpdateRefused):  # the server passed over it as well
            self.state = self.rule.receive(self.state, update)
        self.updates += 1
        self._progress(self.updates)

    def reach(self, version: int) -> None:
        """Make the versions up to this one that are still missing."""
        self._settle()
        while self.state.version < version:
            self._make_next()
            self._settle()

    def _make_next(self) -> None:
        before = self.state.version
        self.state = self.rule.flush(self.state)  # a timer's step, or one without some updates
        if self.state.version > before:
            return
        if not self._without:
            raise StoreCorrupt(
                f"Nothing in the store made version {before + 1}. Restore it from a backup."
            )
        self.state = renumbered(self.rule, self.state, before + 1)

    def _settle(self) -> None:
        """What holds from the present version on; before any update after it is folded."""
        at = self.state.version
        if at == self._settled:
            return
        self._settled = at
        if at in self._set_after:
            self.rule = self._rule_after(at)
        for worker in self._revoked.get(at, ()):
            self.rule.forget(self.state, worker)


def renumbered(rule: Rule[Any], state: Any, version: int) -> Any:
    """The same state under another version number."""
    return _changed(rule, state, version, {})


def afresh(rule: Rule[Any], snapshot: Snapshot, version: int) -> Any:
    """The state of a rule that begins with a snapshot, as this version.

    The vectors beside the model go on: workers hold their halves of them.
    """
    state = rule.init(snapshot.params)
    vectors = {id(state.extras[name]): snapshot.extras[name].copy() for name in state.extras}
    return _changed(rule, state, version, vectors)


def _changed(rule: Rule[Any], state: Any, version: int, vectors: dict[int, Any]) -> Any:
    parts = list(rule.rows(state).values())
    arrays, numbers = pack(state, apart=parts)
    arrays = {name: vectors.get(id(array), array) for name, array in arrays.items()}
    numbers |= {name: version for name in numbers if name.rpartition(".")[2] == "version"}
    made = unpack(state, arrays, numbers, apart=parts)
    if made.version != version:
        raise ConfigError(
            f"The state of {type(rule).__name__} has no number called version, so it cannot be "
            "rolled back: give it one."
        )
    return made
