"""Bringing the tables of a store that an earlier version wrote to the present schema.

Only ``anarchic store upgrade`` does so, when an operator asks for it: whoever opens an older store
is refused, for a server of the earlier version could not read it afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from anarchic.errors import ConfigError, OtherSchema, StoreCorrupt
from anarchic.server import tables as t
from anarchic.server.backup import copy_file
from anarchic.server.database import Database, database_at, path_of

OLDEST = 2

_FROM_4 = (
    "ALTER TABLE run ADD COLUMN trace_from BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE run ADD COLUMN base_from BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE models ADD COLUMN kept TEXT",
    "ALTER TABLE workers ADD COLUMN rights TEXT DEFAULT 'pull,push' NOT NULL",
    "ALTER TABLE workers ADD COLUMN expires_s DOUBLE PRECISION",
    "ALTER TABLE workers ADD COLUMN used_s DOUBLE PRECISION",
    "ALTER TABLE workers ADD COLUMN old_hash {bytes}",
    "ALTER TABLE workers ADD COLUMN old_until_s DOUBLE PRECISION",
)


@dataclass(frozen=True)
class Upgraded:
    """What an upgrade did."""

    before: int
    after: int
    backup: Path | None


def upgrade_store(where: str | Path, *, backup: bool = True) -> Upgraded:
    """Bring a store to the present schema, in one transaction; SQLite is copied before, unless told
    otherwise. Refused while a server has the store open."""
    database = database_at(where, create=False, outdated=True)
    try:
        with database.reading() as connection:
            before = schema_of(connection)
        check_known(before)
        if before == t.SCHEMA:
            return Upgraded(before, before, None)
        _check_unused(database)
        path = path_of(where)
        copy = None
        if backup and path is not None:
            copy = copy_file(path, _free_name(path, before))
        with database.writing() as connection:
            migrate(connection)
    finally:
        database.close()
    return Upgraded(before, t.SCHEMA, copy)


def _check_unused(database: Database) -> None:
    if not (database.claim() and database.take_lead()):
        raise ConfigError(
            "A server has this store open: stop it (all of them, with PostgreSQL), then upgrade."
        )


def _free_name(path: Path, schema: int) -> Path:
    """Where the copy goes; an earlier copy is never written over."""
    wanted = path.with_name(f"{path.name}.schema-{schema}")
    found, number = wanted, 1
    while os.path.lexists(found):
        number += 1
        found = wanted.with_name(f"{wanted.name}.{number}")
    return found


def check_schema(connection: sa.Connection, where: str) -> None:
    """Refuse a store that this version does not read, with the command that mends it."""
    number = schema_of(connection)
    check_known(number)
    if number < t.SCHEMA:
        raise OtherSchema(
            f"The store {where} has schema {number}, and this version of anarchic needs "
            f"{t.SCHEMA}. Stop its server, then run: anarchic store upgrade {where}"
        )


def schema_of(connection: sa.Connection) -> int:
    number = connection.execute(sa.select(t.schema.c.number)).scalar()
    if number is None:
        raise StoreCorrupt("The store does not say which schema it has. Restore it from a backup.")
    return int(number)


def check_known(number: int) -> None:
    if OLDEST <= number <= t.SCHEMA:
        return
    remedy = "Upgrade anarchic" if number > t.SCHEMA else "Go on with the version that began it"
    raise OtherSchema(
        f"The store has schema {number}, this version of anarchic reads {OLDEST} to {t.SCHEMA}. "
        f"{remedy}."
    )


def migrate(connection: sa.Connection) -> None:
    """Bring older tables to the present schema, in the one transaction that writes now."""
    for number in range(schema_of(connection), t.SCHEMA):
        _STEPS[number](connection)
        connection.execute(sa.update(t.schema).values(number=number + 1))


def _from_2(connection: sa.Connection) -> None:
    """It did not say whether a run keeps payloads: one that does has the body of update 0."""
    statements = (
        "ALTER TABLE run ADD COLUMN keep_payloads BOOLEAN DEFAULT FALSE NOT NULL",
        "UPDATE run SET keep_payloads = EXISTS (SELECT 1 FROM payloads JOIN updates"
        ' ON payloads.seq = updates.seq WHERE updates."order" = 0)',
    )
    for statement in statements:
        connection.execute(sa.text(statement))


def _from_3(connection: sa.Connection) -> None:
    """Epochs had no names: versions until now belong to none."""
    t.epochs.create(connection)


def _from_4(connection: sa.Connection) -> None:
    kind = sa.LargeBinary().compile(connection.dialect)  # which every database calls otherwise
    for statement in _FROM_4:
        connection.execute(sa.text(statement.format(bytes=kind)))
    for table in (t.commands, t.activity):
        table.create(connection)


_STEPS: Mapping[int, Callable[[sa.Connection], None]] = {2: _from_2, 3: _from_3, 4: _from_4}
