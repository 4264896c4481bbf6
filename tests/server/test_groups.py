"""What a group of updates asks of a database: each step costs, above all among many threads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from anarchic.server.store import open_store
from tests.server.make import begun
from tests.server.postgres import PostgresServer
from tests.server.stored import new


@pytest.mark.parametrize("updates", [1, 4, 64])
def test_a_group_takes_five_statements_whatever_its_size(tmp_path: Path, updates: int) -> None:
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store)
        told: list[str] = []
        with store.reading() as connection:
            raw = connection.connection.driver_connection
        assert raw is not None
        raw.set_trace_callback(told.append)
        store.append([new("ann", str(number)) for number in range(updates)])
        words = [text.split("(")[0].split()[:3] for text in told]
    assert [" ".join(each) for each in words] == [
        "BEGIN IMMEDIATE",
        "SELECT max",
        "INSERT INTO updates",
        "INSERT INTO payloads",
        "COMMIT",
    ]


@pytest.mark.parametrize("updates", [1, 64])
def test_a_group_takes_five_statements_in_postgresql_too(
    postgres: PostgresServer, updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def telling(execute: Any) -> Any:
        def told_first(cursor: Any, query: Any, *given: Any, **named: Any) -> Any:
            told.append(" ".join(str(query).split("(")[0].split()[:3]))
            return execute(cursor, query, *given, **named)

        return told_first

    with closing(open_store(postgres.new_place())) as store:
        begun(store)
        for name in ("execute", "executemany"):
            monkeypatch.setattr(psycopg.Cursor, name, telling(getattr(psycopg.Cursor, name)))
        store.append([new("ann", str(number)) for number in range(updates)])
        monkeypatch.undo()
        assert len(store.waiting()) == updates
    assert told == [
        "SELECT nextval",
        "INSERT INTO updates",
        "SELECT base_from FROM",
        "INSERT INTO payloads",
        "SELECT pg_notify",
    ]


def test_those_of_a_group_that_are_known_are_looked_for_once(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store)
        store.append([new("ann", "1"), new("ann", "2")])
        receipts = store.append([new("ann", str(number)) for number in (2, 3, 1, 4)])
        assert [(r.outcome, r.seq) for r in receipts] == [
            ("duplicate", 2),
            ("accepted", receipts[1].seq),
            ("duplicate", 1),
            ("accepted", receipts[3].seq),
        ]
        assert [seq for seq, _ in store.waiting()] == [1, 2, receipts[1].seq, receipts[3].seq]
