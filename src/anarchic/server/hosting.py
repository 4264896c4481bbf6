"""Beginning and listing the runs of a directory or database: ``anarchic run``, for Python too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from anarchic.core.inspection import concerns
from anarchic.errors import AnarchicError, ConfigError
from anarchic.server.accounts import accounts
from anarchic.server.commands import commands, rules_after
from anarchic.server.evaluate import check_judge
from anarchic.server.places import is_copy, places_at
from anarchic.server.runs import check_begin, first_model, open_run, stored_rules
from anarchic.server.settings import (
    KeepSettings,
    RuleSettings,
    RunSettings,
    ServerSettings,
    given_rules,
    served_rule,
)
from anarchic.server.store import open_store


@final
@dataclass(frozen=True)
class RunRow:
    """Where one of several runs stands, or why that cannot be read."""

    name: str
    run: str | None = None  # the id
    version: int | None = None
    rule: str | None = None
    m: int | None = None
    workers: int | None = None  # with tokens that are valid; operators are none
    problem: str | None = None


def create_run(
    name: str,
    where: str | Path,
    init: str | Path,
    *,
    rules: RuleSettings | Mapping[str, Any] | None = None,
    keep_payloads: bool | None = None,
    keep: KeepSettings | None = None,
) -> list[str]:
    """Begin a run in a directory (``NAME.db``) or database (schema ``NAME``); returns warnings.

    A server that serves the others serves it within seconds. A name that is taken is refused.
    ``keep`` is recorded: what is kept of the run, how it is evaluated, and when it ends.
    """
    kept = {} if keep is None else keep.chosen
    run = RunSettings(store=where, keep_payloads=keep_payloads, **kept)  # refuses contradictions
    given, places = given_rules(rules), places_at(where)
    try:
        check_judge(run, check_begin(given, init, ServerSettings()))  # leaves nothing behind
        place = places.create(name)
        with closing(open_store(place, keep_payloads=keep_payloads)) as store:
            if store.run() is not None:
                raise ConfigError(f"There is a run {name!r} already: choose another name.")
            open_run(store, given, init, kept)
    finally:
        places.close()
    return list(concerns(first_model(init).layout, str(init)))


def list_runs(where: str | Path) -> list[RunRow]:
    """The runs of a directory or database, by name; a damaged one has a problem."""
    with closing(places_at(where)) as places:
        rows = [_row(name, places.place(name)) for name in places.names()]
    first = {row.run: row.name for row in reversed(rows)}
    return [
        row
        if row.run is None or first[row.run] == row.name
        else replace(row, problem=is_copy(first[row.run]))
        for row in rows
    ]


def _row(name: str, place: str) -> RunRow:
    try:
        with closing(open_store(place, create=False)) as store:
            run = store.run()
            if run is None:
                return RunRow(name, problem="It has not begun: 'anarchic run create' begins it.")
            rules = rules_after(stored_rules(run), commands(store))
            m = served_rule(rules).m
            held = [a.rights for a in accounts(store).values() if not a.revoked]
            valid = sum(rights != "operate" for rights in held)
    except AnarchicError as error:
        return RunRow(name, problem=str(error))
    return RunRow(name, run.settings["run"], run.version, rules.rule, m, valid)
