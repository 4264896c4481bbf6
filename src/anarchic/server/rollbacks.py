"""Rolling a run back: what can be gone back to, and the version that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from anarchic import wire
from anarchic.core.rule import Rule
from anarchic.core.types import Snapshot
from anarchic.core.validation import did_you_mean
from anarchic.errors import ConfigError, Deposed, Diverged, RunError, StoreCorrupt
from anarchic.server import tables as t
from anarchic.server.commands import (
    Command,
    check_counts,
    commands,
    in_words,
    is_text,
    rules_after,
    shown_versions,
    withdrawal,
)
from anarchic.server.fold import changed_rows, encode_state, not_finite
from anarchic.server.records import SET_ASIDE, Publication, StoredRun, rows_of
from anarchic.server.refold import afresh, counted_in, refold, renumbered, stretches, why_not
from anarchic.server.runs import stored_layout, stored_rules, stored_terms
from anarchic.server.settings import served_rule
from anarchic.server.store import Store

_U = t.updates.c
Arguments = dict[str, Any]


def check_rollback(
    store: Store,
    run: StoredRun,
    to: int | None = None,
    without: str | None = None,
    withdrawn: bool = False,
) -> Arguments:
    """Where a rollback goes, and from which version on what was published is withdrawn.

    A version that was withdrawn before is refused unless ``withdrawn`` says that it is meant.
    """
    if to is None and without is None:
        raise ConfigError("Roll back to a version (--to N), or without a worker (--without NAME).")
    if not (to is None or type(to) is int) or not (without is None or is_text(without)):
        raise ConfigError("A rollback goes to a version, a whole number, and without a worker.")
    if type(withdrawn) is not bool:
        raise ConfigError(f"withdrawn is true or false, got {str(withdrawn)[:50]!r}.")
    last = run.version - (without is None)
    if to is not None and not 0 <= to <= last:
        there = f"go back to 0 to {last}" if last >= 0 else "there is nothing to undo"
        raise ConfigError(f"The run stands at version {run.version}: {there}, got --to {to}.")
    known, meant = commands(store), {"withdrawn": True} if withdrawn else {}
    if to is not None and not withdrawn:
        check_counts(known, to, run.version, "--withdrawn")
    if without is None:
        assert to is not None, "one of them is given"
        _target(store, run, to)
        return {"to": to, "without": None, "first": to + 1, **meant}
    if why := why_not(store, run):
        raise ConfigError(f"The updates of {without} cannot be taken out: {why}.")
    first = _first_version(store, known, without, run.version if to is None else to)
    first = first if to is None else min(first, to + 1)
    return {"to": to, "without": without, "first": first, **meant}


def _first_version(store: Store, known: list[Command], worker: str, last: int) -> int:
    """The first of the versions that version ``last`` is made of with the worker's updates."""
    with store.reading() as connection:
        for stretch in stretches(known, last, frozenset()):
            query = select(func.min(_U.version)).where(_U.worker == worker, counted_in(stretch))
            if (found := connection.execute(query).scalar()) is not None:
                return int(found)
        names = connection.execute(select(_U.worker).distinct()).scalars().all()
    if worker in names:
        raise ConfigError(
            f"No update of worker {worker!r} counts in version {last}: 'anarchic log' names the "
            "rollbacks that took them out, and those that wait count in no version yet."
        )
    close = did_you_mean(worker, names)
    raise ConfigError(f"Worker {worker!r} has sent no update.{close}")


def kept_versions(store: Store) -> list[int]:
    """The versions whose models the store still has, the oldest first."""
    with store.reading() as connection:
        query = select(t.models.c.version).order_by(t.models.c.version)
        return list(connection.execute(query).scalars())


def _target(store: Store, run: StoredRun, to: int) -> None:
    kept = kept_versions(store)
    if to not in kept and (why := why_not(store, run)):
        raise ConfigError(
            f"Version {to} is no longer kept (there are {shown_versions(kept)}), and {why}."
        )


@dataclass(frozen=True)
class Prepared:
    """A version that a rollback makes, before anything is written."""

    run: StoredRun  # as it stood
    rule: Rule[Any]
    state: Any
    told: str
    aside: list[int]  # seqs of updates that are set aside with it


def prepare(store: Store, run: StoredRun, arguments: Arguments) -> Prepared:
    """Make the version that a rollback asks for."""
    known = commands(store)
    rule = served_rule(rules_after(stored_rules(run), known), stored_layout(run))
    state, told = _state_of(store, run, rule, arguments)
    if wrong := not_finite(rule, state):
        raise Diverged(f"It would leave numbers in {', '.join(wrong)} that are not finite.")
    to, before = arguments["to"], None
    if to is not None and (before := withdrawal(known, to)) is not None:
        told += f" Version {to} had been withdrawn by {in_words(before)}."
    aside = _waiting_on(store, (arguments["first"], run.version), arguments["without"])
    if aside:
        many = "1 waiting update was" if len(aside) == 1 else f"{len(aside)} waiting updates were"
        told += f" {many} set aside."
    return Prepared(run, rule, state, told, aside)


def publish(store: Store, epoch: int, made: Prepared, also: Callable[[Connection], None]) -> None:
    """Publish it in a new epoch; ``also`` becomes true in the same transaction."""
    run, rule, state, layout = made.run, made.rule, made.state, stored_layout(made.run)
    now = store.standing()
    if (now.run.version, now.run.epoch) != (run.version, epoch):
        raise Deposed("The run has moved on: another process leads.")
    name, version = now.epochs[-1][1], run.version + 1
    terms = stored_terms(run, rule)
    snapshot = Snapshot(version, state.params, state.extras, terms=terms)
    rows, _ = changed_rows(rule, state)
    store.publish(
        Publication(
            epoch=epoch,
            previous=run.version,
            version=version,
            folded=[(seq, SET_ASIDE) for seq in made.aside],
            model=wire.encode_snapshot(layout, snapshot, run.settings["run"], epoch=name),
            state=encode_state(rule, state, layout),
            rows=rows,
            forgotten=sorted(now.rows.keys() - rows.keys()),
            first=now.run.folded,
            also=also,
        )
    )


def _state_of(
    store: Store, run: StoredRun, rule: Rule[Any], arguments: Arguments
) -> tuple[Any, str]:
    """The state of the version that a rollback makes, and what it does, in words."""
    to, without, version = arguments["to"], arguments["without"], run.version + 1
    first, last = arguments["first"], run.version
    are = f"version {last} is" if first == last else f"versions {first} to {last} are"
    gone = f"{are} withdrawn."
    try:
        if without is not None:
            found = refold(store, until=to, without=[without])
            what = f"that of version {run.version if to is None else to} without {without}"
            told = f"Version {version} is {what}, from {found.updates} updates; {gone}"
            return renumbered(rule, found.state, version), told
        body = store.model(to)
        if body is not None:
            snapshot = wire.decode_snapshot(body)[1]
        else:
            made = refold(store, until=to).state
            snapshot = Snapshot(to, made.params, made.extras)
    except StoreCorrupt as error:  # of an old row: the run itself may go on
        raise RunError(str(error)) from error
    return afresh(rule, snapshot, version), f"Version {version} is version {to} again; {gone}"


def _waiting_on(store: Store, gone: tuple[int, int], without: str | None) -> list[int]:
    """The updates in no version that build on what is withdrawn, or that the worker sent."""
    columns = select(_U.seq, _U.worker, _U.base_version).where(_U.order.is_(None))
    with store.reading() as connection:
        found = rows_of(connection, columns.order_by(_U.seq))
    return [
        row.seq for row in found if gone[0] <= row.base_version <= gone[1] or row.worker == without
    ]
