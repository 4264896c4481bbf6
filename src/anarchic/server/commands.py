"""Commands of operators: rows of the store that any process may write and the leader applies.

A command takes effect after one version, which its row names from then on. What holds at a version
is what the commands say that took effect before it, in the order of their numbers: a server that
starts, a replica and a replay all find the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal, get_args

from sqlalchemy import Connection, func, select, update

from anarchic.core.factory import RuleSettings
from anarchic.errors import ConfigError, Deposed, StoreError
from anarchic.server import tables as t
from anarchic.server.records import StoredRun, find_run, read_json, rows_of
from anarchic.server.store import Store

Kind = Literal["pause", "resume", "end", "set", "rollback"]
KINDS: tuple[str, ...] = get_args(Kind)
Condition = Literal["running", "paused", "ended"]
_CONDITIONS: dict[str, Condition] = {"pause": "paused", "resume": "running", "end": "ended"}
LONGEST_REASON = 2_000  # characters
MOST_SHOWN = 10_000  # versions that count, the newest, which a refusal names as ranges
_C = t.commands.c
_WAITS = _C.version.is_(None) & _C.applied_s.is_(None)


@dataclass(frozen=True, slots=True)
class Command:
    """What an operator asked for, and what became of it.

    ``arguments`` are the new settings of a ``set``. Those of a ``rollback`` are ``to`` (a version,
    None: the newest), ``without`` (a worker or None), and ``first``: the oldest version that is
    withdrawn. An ``end`` at a version that was asked for has it as ``last``.
    """

    number: int
    kind: str
    arguments: Mapping[str, Any]
    issued_by: str
    issued_s: float  # wall clock
    version: int | None = None  # after which it took effect
    applied_s: float | None = None  # wall clock; when it was applied or refused
    reason: str | None = None  # what it did, or why it was refused

    @property
    def outcome(self) -> Literal["waiting", "applied", "refused"]:
        if self.version is not None:
            return "applied"
        return "waiting" if self.applied_s is None else "refused"

    def told(self) -> dict[str, Any]:
        """For a log line or JSON."""
        # JSON has no infinity, which ``guard`` may be.
        given = {n: str(v) if v in (inf, -inf) else v for n, v in self.arguments.items()}
        facts = {"number": self.number, "kind": self.kind, "arguments": given}
        issued = {"issued_by": self.issued_by, "issued_s": self.issued_s}
        became = {"version": self.version, "applied_s": self.applied_s, "reason": self.reason}
        return {**facts, **issued, "outcome": self.outcome, **became}


def issue(
    store: Store, kind: str, arguments: Mapping[str, Any], *, by: str, now_s: float
) -> Command:
    """Write a command, which waits until the leader applies it."""
    with store.writing() as connection:
        if find_run(connection) is None:
            raise StoreError("The store holds no run to command: begin one with 'anarchic serve'.")
        return _insert(store, connection, Command(0, kind, dict(arguments), by, float(now_s)))


def end_at(
    store: Store, version: int, reason: str, *, now_s: float
) -> Callable[[Connection], None]:
    """What ends a run together with the publication of its last version: see ``Publication.also``.

    Updates that no version holds then never will be in one.
    """
    given = Command(0, "end", {"reason": reason, "last": version}, "server", float(now_s))

    def end(connection: Connection) -> None:
        mark(
            connection, _insert(store, connection, given), version=version, at_s=now_s,
            reason=f"Updates are refused for good; the model can still be pulled. {reason}",
        )  # fmt: skip

    return end


def _insert(store: Store, connection: Connection, given: Command) -> Command:
    """Write a command under the next number."""
    text = json.dumps(dict(given.arguments))
    facts = {"kind": given.kind, "issued_by": given.issued_by, "issued_s": given.issued_s}
    once = store.insert(t.commands).on_conflict_do_nothing().returning(_C.number)
    while True:  # where several processes write at once, each finds a number of its own
        last = connection.execute(select(func.max(_C.number))).scalar() or 0
        new = replace(given, number=last + 1)
        seal = t.seal(_place(new), text.encode())
        row = {"number": new.number, "arguments": text, "seal": seal, **facts}
        if connection.execute(once, row).one_or_none() is not None:
            return new


def commands(store: Store) -> list[Command]:
    """All commands in the order in which they were given, and what became of each."""
    with store.reading() as connection:
        return read_all(connection)


def read_all(connection: Connection) -> list[Command]:
    return [_read(row) for row in rows_of(connection, select(t.commands).order_by(_C.number))]


def waiting(store: Store) -> list[Command]:
    """Those that nobody has applied or refused, the oldest first."""
    with store.reading() as connection:
        query = select(t.commands).where(_WAITS).order_by(_C.number)
        return [_read(row) for row in rows_of(connection, query)]


def mark_of(store: Store) -> tuple[int, int]:
    """Two numbers of which one changes whenever a command is given, applied or refused."""
    with store.reading() as connection:
        counted = select(func.count(_C.number), func.count(_C.applied_s))
        given, settled = connection.execute(counted).one()
    return int(given), int(settled)


def mark(
    connection: Connection, command: Command, *, version: int | None, at_s: float, reason: str
) -> None:
    """Say what became of a command, once; ``version`` None means that it was refused."""
    storable = reason.replace("\0", "\\0").encode(errors="backslashreplace")
    told = storable.decode()  # not every database can hold the rest
    values = {"version": version, "applied_s": at_s, "reason": told[:LONGEST_REASON]}
    query = update(t.commands).where(_C.number == command.number, _WAITS).values(**values)
    if connection.execute(query).rowcount != 1:
        raise Deposed(f"Command {command.number} was settled by another process.")


def settle(
    store: Store, run: StoredRun, command: Command, *, at_s: float, reason: str, refused: bool
) -> None:
    """Mark a command that changes no model, if the run still stands where the leader saw it."""
    same = (t.run.c.version == run.version) & (t.run.c.epoch == run.epoch)
    stay = update(t.run).where(same, t.run.c.folded == run.folded).values(version=run.version)
    with store.writing() as connection:
        if connection.execute(stay).rowcount != 1:
            raise Deposed("The run has moved on: another process leads.")
        version = None if refused else run.version
        mark(connection, command, version=version, at_s=at_s, reason=reason)


def condition(known: Iterable[Command]) -> Condition:
    """What the commands so far leave a run in; nothing follows its end."""
    now: Condition = "running"
    for command in known:
        if command.outcome == "applied" and now != "ended":
            now = _CONDITIONS.get(command.kind, now)
    return now


def end_of(known: Iterable[Command]) -> Command | None:
    """The command that has ended the run, if one has."""
    return next((c for c in known if c.kind == "end" and c.outcome == "applied"), None)


def rules_after(begun: RuleSettings, known: Iterable[Command]) -> RuleSettings:
    """The settings that hold after the commands that were applied."""
    for command in known:
        if command.kind == "set" and command.outcome == "applied":
            begun = replace(begun, **command.arguments)
    return begun


def withdrawn(known: Iterable[Command]) -> list[tuple[int, int]]:
    """(first, last) of the versions that nobody may build on any more, for each rollback."""
    return [
        (int(command.arguments["first"]), command.version)
        for command in known
        if command.kind == "rollback" and command.version is not None
    ]


def is_withdrawn(ranges: Sequence[tuple[int, int]], version: int) -> bool:
    return any(first <= version <= last for first, last in ranges)


def withdrawal(known: Iterable[Command], version: int) -> Command | None:
    """The rollback that withdrew a version, the first if there were several."""
    return next((c for c in known if is_withdrawn(withdrawn([c]), version)), None)


def takes_back(known: Iterable[Command], worker: str, base: int) -> bool:
    """Whether a rollback sets aside a worker's update that builds on a version."""
    applied = [c for c in known if c.kind == "rollback" and c.version is not None]
    without = any(c.arguments["without"] == worker for c in applied)
    return without or is_withdrawn(withdrawn(applied), base)


def in_words(command: Command) -> str:
    """Which rollback it was: command 3, rollback to 5 without eve, by ops@host."""
    to, without = command.arguments["to"], command.arguments["without"]
    what = ("" if to is None else f" to {to}") + ("" if without is None else f" without {without}")
    return f"command {command.number}, rollback{what}, by {command.issued_by}"


def check_counts(known: Sequence[Command], version: int, newest: int, option: str) -> None:
    """Refuse a version that was withdrawn, and say which ones count, unless ``option`` is given."""
    by = withdrawal(known, version)
    if by is None:
        return
    (first, last), gone = withdrawn([by])[0], withdrawn(known)
    left = [each for each in range(newest + 1) if not is_withdrawn(gone, each)]
    others = f" with versions {first} to {last}" if first < last else ""
    raise ConfigError(
        f"Version {version} was withdrawn{others} ({in_words(by)}). Name one that counts "
        f"({shown_versions(left[-MOST_SHOWN:])}), or say {option} to take it all the same."
    )


def shown_versions(versions: Iterable[int]) -> str:
    """Versions in words: 0, 3 to 7."""
    ranges: list[list[int]] = []
    for version in versions:
        if ranges and ranges[-1][-1] == version - 1:
            ranges[-1][1:] = [version]
        else:
            ranges.append([version])
    return ", ".join(" to ".join(map(str, each)) for each in ranges)


def is_text(value: object) -> bool:
    """Whether every database can hold it: no half of a character, no zero byte."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(row: Any) -> Command:  # a database row
    """A command, if it is the one that was given."""
    arguments = read_json(row.arguments, f"command {row.number}")
    given = (row.number, row.kind, arguments, row.issued_by, row.issued_s)
    found = Command(*given, row.version, row.applied_s, row.reason)
    t.unseal(_place(found), row.arguments.encode(), row.seal)
    return found


def _place(command: Command) -> str:
    facts = [command.number, command.kind, command.issued_by, command.issued_s]
    return f"command {json.dumps(facts)}"
