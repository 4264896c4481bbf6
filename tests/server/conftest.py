"""Stores to test with: each test that takes ``store`` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anarchic.server.store import Store, open_store
from tests.server.operated import worlds
from tests.server.postgres import PostgresServer, postgres_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PostgreSQL takes seconds to start."""
    for item in items:
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for each process of the test run, started when first asked for."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh store can be opened."""
    if request.param == "sqlite":
        return str(tmp_path / "run.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_place()


Opener = Callable[..., Store]


@pytest.fixture
def opened(place: str) -> Iterator[Opener]:
    """Opens the same place again and again, and closes what was opened."""
    stores: list[Store] = []

    def again(**settings: object) -> Store:
        stores.append(open_store(place, **settings))  # type: ignore[arg-type]
        return stores[-1]

    yield again
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Opener) -> Store:
    """A store with a run at version 0."""
    store = opened()
    store.create({"rule": "afa-cd"}, b"model 0", b"state 0")
    return store


@pytest.fixture
def world(place):
    """Makes a run in SQLite, and in PostgreSQL."""
    with worlds(place) as make:
        yield make


@pytest.fixture
def in_file(tmp_path):
    """Makes a run in SQLite."""
    with worlds(str(tmp_path / "run.db")) as make:
        yield make
