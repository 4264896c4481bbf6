"""Stores that earlier versions wrote, each by its own code, are upgraded and served on.

The archive holds, for each earlier schema, a store whose server kept payloads and one whose server
did not, and a dump of one in PostgreSQL (schema ``old``). Each is at version 2 of a run with m = 2,
one update waits, and version 2 was evaluated.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.errors import ConfigError, StoreError, StoreUnavailable
from anarchic.server import migrations
from anarchic.server import tables as t
from anarchic.server.database import database_at
from anarchic.server.migrations import upgrade_store
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from tests.server.live import serving, stored, until
from tests.server.make import body
from tests.server.postgres import PostgresServer

ARCHIVE = Path(__file__).parents[1] / "data" / "schemas.tar.xz"
EARLIER = range(migrations.OLDEST, t.SCHEMA)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_every_earlier_schema_has_a_store(archive: Path) -> None:
    for number in EARLIER:
        assert (archive / f"schema-{number}-kept.db").exists(), "add one, made by the old code"


def old_store(archive: Path, number: int, kind: str, place: str, request: object) -> str:
    """An old store at ``place``, which is a path, or an address of an empty schema."""
    if "://" not in place:
        shutil.copy(archive / f"schema-{number}-{kind}.db", place)
        return place
    postgres: PostgresServer = request.getfixturevalue("postgres")  # type: ignore[attr-defined]
    schema = place.rpartition("%3D")[2]
    postgres.sql((archive / f"schema-{number}-kept.sql").read_text().replace("old.", f"{schema}."))
    return place


async def push_one(where: str, *, keep: bool | None) -> None:
    """One update waits; with this one there are two."""
    async with serving(where, keep_payloads=keep) as (service, client):
        assert service.published.newest.version == 2
        answer = await client.post("/v1/updates", content=body("ann", "5", base_version=2))
        assert answer.status_code == 202, answer.text
        again = await client.post("/v1/updates", content=body("ben", "0", base_version=0, seed=0))
        assert again.json()["status"] == "duplicate"
        await until(lambda: service.published.newest.version == 3)


@pytest.mark.parametrize("number", EARLIER)
def test_a_store_is_upgraded_and_served_on(
    archive: Path, number: int, place: str, request: pytest.FixtureRequest
) -> None:
    where = old_store(archive, number, "kept", place, request)
    with pytest.raises(StoreUnavailable, match=f"schema {number}.* anarchic store upgrade"):
        open_store(where)
    done = upgrade_store(where)
    assert (done.before, done.after) == (number, t.SCHEMA)
    assert (done.backup is None) == ("://" in place)
    assert upgrade_store(where).before == t.SCHEMA  # a second time there is nothing to do
    with stored(where) as store:
        run = store.run()
        assert run is not None
        assert (run.version, run.folded, run.keep_payloads) == (2, 4, True)
        assert store.evaluations(1) == [(2, {"accuracy": 0.5})]
        assert [version for version, _ in store.epochs()] == ([] if number < 4 else [0])
        assert replay(store).equal
    asyncio.run(push_one(where, keep=None))
    with stored(where) as store:
        assert replay(store).equal
        assert len(list(store.trace())) == 6


@pytest.mark.parametrize("number", EARLIER)
def test_a_store_without_payloads_is_served_on_without_them(
    archive: Path, number: int, tmp_path: Path
) -> None:
    where = str(shutil.copy(archive / f"schema-{number}-plain.db", tmp_path / "run.db"))
    upgrade_store(where, backup=False)
    assert [path.name for path in tmp_path.glob("run.db.schema*")] == []
    asyncio.run(push_one(where, keep=None))
    with stored(where) as store:
        run = store.run()
        assert run is not None
        assert not run.keep_payloads
        assert store.body(1) is None


def test_upgraded_tables_are_those_of_a_new_store(archive: Path, tmp_path: Path) -> None:
    open_store(tmp_path / "new.db").close()
    wanted = columns(tmp_path / "new.db")
    for number in EARLIER:
        path = tmp_path / f"{number}.db"
        shutil.copy(archive / f"schema-{number}-kept.db", path)
        upgrade_store(path)
        assert columns(path) == wanted


def columns(path: Path) -> dict[str, set[str]]:
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            for (name,) in names.fetchall()
        }


def test_the_copy_is_the_store_as_it_was(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    for number in (1, 2):
        shutil.copy(archive / "schema-3-kept.db", path)
        done = upgrade_store(path)
        assert done.backup == tmp_path / ("run.db.schema-3" + (".2" if number == 2 else ""))
    assert done.backup.stat().st_mode & 0o777 == 0o600
    assert columns(done.backup) == columns(archive / "schema-3-kept.db")


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(archive / "schema-2-kept.db", tmp_path / "run.db"))
    monkeypatch.setattr(migrations, "_FROM_4", (*migrations._FROM_4, "ALTER TABLE nonsense"))
    with pytest.raises(StoreError):
        upgrade_store(path)
    assert columns(path) == columns(archive / "schema-2-kept.db")
    monkeypatch.undo()
    assert upgrade_store(path).before == 2


def test_an_upgrade_is_refused_while_a_server_runs(archive: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(archive / "schema-4-kept.db", tmp_path / "run.db"))
    server = database_at(path, create=False, outdated=True)
    assert server.claim()
    try:
        with pytest.raises(ConfigError, match="A server has this store open: stop it"):
            upgrade_store(path)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("number", "remedy"), [(99, "Upgrade anarchic"), (1, "the version that began it")]
)
def test_another_schema_is_refused(place: str, number: int, remedy: str) -> None:
    store = open_store(place)
    with store.writing() as connection:
        connection.execute(text(f"UPDATE store_schema SET number = {number}"))
    store.close()
    for attempt in (open_store, upgrade_store):
        with pytest.raises(StoreError, match=remedy):
            attempt(place)


def test_every_command_says_the_command(archive: Path, tmp_path: Path) -> None:
    path = str(shutil.copy(archive / "schema-4-plain.db", tmp_path / "run.db"))
    run = CliRunner().invoke
    for words in (["replay", path], ["token", "list", "--store", path], ["serve", "--store", path]):
        found = run(app, words)
        assert found.exit_code == 1
        assert f"anarchic store upgrade {path}" in found.stderr
    found = run(app, ["store", "upgrade", path])
    assert found.exit_code == 0
    assert "from schema 4 to schema 5" in found.output
    assert "run.db.schema-4" in found.output
    assert "Nothing to do" in run(app, ["store", "upgrade", path]).output
    assert run(app, ["store", "upgrade", str(tmp_path / "no.db")]).exit_code == 2
