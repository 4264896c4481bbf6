"""Bringing the tables of an older store to the present schema, once, when it is opened."""

from __future__ import annotations

from sqlalchemy import Connection, select, text, update

from anarchic.server import sql_tables as t


def migrate(connection: Connection) -> None:
    """Change the tables if they are older, and refuse those of a schema that is not known.

    To be called in a transaction that writes, of which there is one at a time.
    """
    number = connection.execute(select(t.schema.c.number)).scalar()
    if number == 2:
        _record_keep_payloads(connection)
        number = 3
        connection.execute(update(t.schema).values(number=number))
    t.check_schema(number)


def _record_keep_payloads(connection: Connection) -> None:
    """Schema 2 did not say whether a run keeps payloads: one that does has that of update 0."""
    statements = (
        "ALTER TABLE run ADD COLUMN keep_payloads BOOLEAN DEFAULT FALSE NOT NULL",
        "UPDATE run SET keep_payloads = EXISTS (SELECT 1 FROM payloads JOIN updates"
        ' ON payloads.seq = updates.seq WHERE updates."order" = 0)',
    )
    for statement in statements:
        connection.execute(text(statement))
