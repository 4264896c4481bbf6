"""Commands of operators: checked before they are written, and applied by whoever leads."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from anarchic.core.factory import RuleSettings
from anarchic.core.validation import check_choice, did_you_mean
from anarchic.errors import AnarchicError, ConfigError, Deposed, StoreFull, StoreUnavailable
from anarchic.server.commands import (
    KINDS,
    LONGEST_REASON,
    Command,
    Kind,
    commands,
    end_of,
    is_text,
    issue,
    mark,
    rules_after,
    settle,
    waiting,
)
from anarchic.server.records import StoredRun
from anarchic.server.rollbacks import Prepared, check_rollback, prepare, publish
from anarchic.server.runs import stored_layout, stored_rules
from anarchic.server.settings import served_rule
from anarchic.server.store import Store, open_store
from anarchic.server.thinning import KEEP_ALL

WHOLE = ("m", "expire_after", "cap")  # the others are real numbers
SETTABLE = ("m", "server_lr", "staleness_power", "clip", "guard", "expire_after", "cap")
REMOVABLE = ("staleness_power", "clip", "expire_after")  # which none takes away
WAIT_S, LOOK_S = 8.0, 0.1  # how long a command line waits for its command, and between two looks
LEAD_S = 1.0  # how often it asks whether anybody leads
# After these a command is applied again, by whoever leads then; after all others it is refused.
PASSING = (Deposed, StoreFull, StoreUnavailable)
FAILURES = (Exception, SystemExit)  # whatever a rule of somebody else's raises
AFTER_END = {  # what to do instead
    "set": "no update will be folded with other settings",
    "rollback": "write an earlier version to a file with 'anarchic export STORE --version N'",
    "end": "it takes no more updates",
}
Arguments = dict[str, Any]


# Checking a command before it is written


def check_command(store: Store, kind: str, arguments: Mapping[str, Any]) -> Arguments:
    """The arguments as they are recorded; refused if the command could not be applied now."""
    check_choice("command", kind, KINDS)
    run = store.run()
    if run is None:
        raise ConfigError("The store holds no run to command: begin one with 'anarchic serve'.")
    known = commands(store)
    if (by := end_of(known)) is not None:
        raise ConfigError(
            f"The run has ended (command {by.number}, after version {by.version}), and the end is "
            f"final: {AFTER_END.get(kind, f'there is nothing to {kind}')}."
        )
    if kind == "set":
        return check_settings(run, rules_after(stored_rules(run), known), arguments)
    allowed = ("to", "without", "withdrawn") if kind == "rollback" else ("reason",)
    for name in arguments:
        check_choice(f"argument of {kind}", name, allowed)
    if kind == "rollback":
        return check_rollback(store, run, **arguments)
    why = arguments.get("reason")
    if not (why is None or is_text(why)):
        raise ConfigError(f"The reason of a command is a text, got {str(why)[:50]!r}.")
    return {} if why is None else {"reason": why[:LONGEST_REASON]}


def check_settings(run: StoredRun, now: RuleSettings, given: Mapping[str, Any]) -> Arguments:
    """New settings of the rule, by name, as numbers or as texts."""
    if not given:
        raise ConfigError(f"Nothing to set: give one of {', '.join(SETTABLE)}, such as m=8.")
    new = {name: _setting(name, value) for name, value in given.items()}
    if bool(new.get("guard", now.guard)) != bool(now.guard):
        raise ConfigError(
            f"A guard cannot be switched {'off' if now.guard else 'on'} in a run that was begun "
            f"{'with' if now.guard else 'without'} one"
            + (": guard=inf lets every update through." if now.guard else ".")
        )
    served_rule(replace(now, **new), stored_layout(run))
    return new


def _setting(name: str, value: Any) -> Any:
    if name not in SETTABLE:
        fixed = name in RuleSettings.__dataclass_fields__
        told = f"{name} cannot be changed in a run" if fixed else f"There is no setting {name!r}"
        close = "" if fixed else did_you_mean(name, SETTABLE)
        raise ConfigError(f"{told}.{close} These can be set: {', '.join(SETTABLE)}.")
    if name in REMOVABLE and value in (None, "none"):
        return None
    try:
        found: float = int(str(value)) if name in WHOLE else float(str(value))
    except ValueError:
        kind = "a whole number" if name in WHOLE else "a number"
        raise ConfigError(f"{name} must be {kind}, got {str(value)[:50]!r}.") from None
    return found


# Applying commands: by the leader, or by a command line where nobody leads


def apply_waiting(
    store: Store, epoch: int, *, now_s: Callable[[], float] = time.time,
    tell: Callable[[Command], object] = lambda command: None,
) -> int:  # fmt: skip
    """Apply what waits, in order; ``tell`` hears of each. Returns the epoch that holds then."""
    for command in waiting(store):
        epoch = _apply(store, epoch, command, now_s)
        tell(settled(store, command.number))
    return epoch


def settled(store: Store, number: int) -> Command:
    """What became of a command so far."""
    return next(command for command in commands(store) if command.number == number)


def _apply(store: Store, epoch: int, command: Command, now_s: Callable[[], float]) -> int:
    """Apply a command, or refuse it for good; the epoch that holds then.

    Only what may be gone with the next attempt is raised: a command must not stop the run.
    """
    made: Prepared | None = None
    try:
        arguments = _checked_again(store, command)
        if command.kind == "rollback":
            made = prepare(store, _standing(store, epoch), arguments)
        else:
            told = _effect(store, command)
    except PASSING:
        raise
    except FAILURES as error:
        return _refuse(store, epoch, command, error, now_s())
    if made is not None:
        return _publish(store, command, made, now_s)
    settle(store, _standing(store, epoch), command, at_s=now_s(), reason=told, refused=False)
    return epoch


def _publish(store: Store, command: Command, made: Prepared, now_s: Callable[[], float]) -> int:
    epoch = store.lead()  # versions from now on are of another epoch
    if epoch is None:
        raise Deposed("Another process leads the run.")
    run = made.run

    def settle_too(connection: Connection) -> None:
        mark(connection, command, version=run.version, at_s=now_s(), reason=made.told)

    try:
        publish(store, epoch, made, settle_too)
    except PASSING:
        raise
    except FAILURES as error:
        return _refuse(store, epoch, command, error, now_s())
    return epoch


def _refuse(store: Store, epoch: int, command: Command, error: BaseException, at_s: float) -> int:
    reason = str(error) if isinstance(error, AnarchicError) else repr(error)
    settle(store, _standing(store, epoch), command, at_s=at_s, reason=reason, refused=True)
    return epoch


def _checked_again(store: Store, command: Command) -> Arguments:
    """Others may have been applied since it was given. What was withdrawn then is kept."""
    given = {name: value for name, value in command.arguments.items() if name != "first"}
    return {**check_command(store, command.kind, given), **command.arguments}


def _standing(store: Store, epoch: int) -> StoredRun:
    run = store.run()
    if run is None or run.epoch != epoch:
        raise Deposed("Another process leads the run.")
    return run


def _effect(store: Store, command: Command) -> str:
    """What a command does that changes no model, in words."""
    if command.kind != "set":
        words = {
            "pause": "Updates are refused and no step is taken until the run is resumed.",
            "resume": "Updates are taken again.",
            "end": "Updates are refused for good; the model can still be pulled.",
        }
        why = command.arguments.get("reason")
        return words[command.kind] + ("" if why is None else f" Reason: {why}")
    run = store.run()
    assert run is not None, "it was checked"
    before = asdict(rules_after(stored_rules(run), commands(store)))
    changes = (f"{n}={_told(v)} (was {_told(before[n])})" for n, v in command.arguments.items())
    return f"{', '.join(changes)}."


def _told(value: Any) -> str:
    """A setting as it is given."""
    return "none" if value is None else str(value)


def give(
    store: Store, kind: str, arguments: Mapping[str, Any], *, by: str, now_s: float
) -> Command:
    """Check a command and write it, for whoever leads."""
    checked = check_command(store, kind, arguments)
    return issue(store, kind, checked, by=by, now_s=now_s)


# What a command line, or a Python caller, does


def steer(
    where: str | Path,
    kind: Kind,
    arguments: Mapping[str, Any] | None = None,
    *,
    by: str | None = None,
    wait_s: float = WAIT_S,
) -> Command:
    """Give a command to the run in a store, and wait until it was applied; what became of it.

    Where no server leads the run, it is applied here. A server that does notices it within a
    second; where it needs longer than ``wait_s``, the command is still waiting.
    """
    store = open_store(where, create=False, history=KEEP_ALL)
    try:
        given = give(store, kind, arguments or {}, by=by or operator(), now_s=time.time())
        until, ask_s = time.monotonic() + wait_s, 0.0
        while True:
            now = settled(store, given.number)
            if now.outcome != "waiting" or time.monotonic() >= until:
                return now
            if time.monotonic() >= ask_s:  # not with every look: it takes a session
                ask_s = time.monotonic() + LEAD_S
                if _apply_here(store):
                    continue
            time.sleep(LOOK_S)
    finally:
        store.close()


def _apply_here(store: Store) -> bool:
    """Apply what waits, if nobody leads the run; whether that is so."""
    epoch = store.lead()
    if epoch is None:
        return False
    try:
        with suppress(Deposed):  # a server has begun to lead meanwhile
            apply_waiting(store, epoch)
    finally:
        store.resign()
    return True


def operator() -> str:
    """Who gives commands here: the user of this machine, as far as it is known."""
    user = "?"
    with suppress(Exception):  # an account without a name, as in many containers
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
