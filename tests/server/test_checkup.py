"""Whatever is changed in a store by hand is found, named, and said what it costs."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.server import checkup as module
from anarchic.server.checkup import ALL, COUNTING, PULLING, REPLAY, SERVING, check_store
from anarchic.server.compact import compact
from anarchic.server.store import Store, open_store
from tests.server.conftest import Opener
from tests.server.stored import led, new, next_version, outcomes


def fill(store: Store) -> None:
    """A bit of everything."""
    store.create({"rule": "afa-cd"}, b"model 0", b"state 0")
    epoch = led(store)
    for version in range(3):
        sent = (new(worker, str(version), base_version=version) for worker in ("ann", "ben"))
        seqs = [seq for _, seq in outcomes(store, *sent)]
        store.publish(next_version(store, epoch, seqs, rows={"ann": b"row"}))
    outcomes(store, new("ann", "waits", base_version=3))
    store.add_evaluation(3, {"accuracy": 0.5})


def test_a_whole_store_is_found_to_be_whole(
    opened: Opener, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)
    store = opened(keep_payloads=True)
    fill(store)
    found = check_store(place)
    assert found.damaged == []
    assert found.works == list(ALL)
    assert found.looked_at["updates"] == found.looked_at["bodies"] == 7
    assert found.looked_at["models"] == 4
    compact(store, before=3, drop_payloads=True)
    assert check_store(place).damaged == []
    with store.writing() as connection:
        connection.execute(text("UPDATE updates SET norm = 7 WHERE seq = 6"))
    lost = (COUNTING, REPLAY)  # a replay folds no update that is damaged
    assert check_store(place).works == [work for work in ALL if work not in lost]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run.db"
    store = open_store(path, keep_payloads=True)
    fill(store)
    store.close()
    return path


DAMAGE = [
    ("UPDATE models SET body = :junk WHERE version = 3", "model 3 is damaged", SERVING),
    ("UPDATE models SET body = :junk WHERE version = 1", "model 1 is damaged", PULLING),
    ("DELETE FROM models WHERE version = 3", "version 3, the newest, is missing", SERVING),
    ("DELETE FROM models WHERE version = 0", "first model is missing", REPLAY),
    ("UPDATE state SET body = :junk", "state at version 3.* is damaged", SERVING),
    ("DELETE FROM state", "state of the rule is missing", SERVING),
    ("UPDATE rows SET body = :junk", "row of ann is damaged", SERVING),
    ("UPDATE epochs SET body = :junk", "epoch 1 after version 0 is damaged", SERVING),
    ("UPDATE run SET settings = '{}'", "The stored run .* is damaged", SERVING),
    ("UPDATE run SET folded = 4", "counts 4 folded updates", SERVING),
    ("UPDATE updates SET norm = 7 WHERE seq = 2", "Update 2 in the store is damaged", COUNTING),
    ("UPDATE updates SET worker = 'eve' WHERE seq = 7", "Update 7 .* is damaged", COUNTING),
    ("DELETE FROM updates WHERE seq = 2", "folded as 0 to 5: 1 and 0 others", COUNTING),
    ("UPDATE updates SET version = 9 WHERE seq = 2", "versions of folded updates", REPLAY),
    ("UPDATE payloads SET body = :junk WHERE seq = 3", "body of update 3 .* damaged", REPLAY),
    ("UPDATE payloads SET body = :junk WHERE seq = 7", "body of update 7 .* damaged", SERVING),
    ("DELETE FROM payloads WHERE seq = 7", "update 7 by ann, which waits, is missing", SERVING),
    ("DELETE FROM payloads WHERE seq = 1", "update 1 by ann is missing", REPLAY),
    ("INSERT INTO payloads VALUES (99, :junk)", "1 bodies belong to no update", REPLAY),
    ("UPDATE evaluations SET metrics = '{'", "evaluation is damaged", "evaluations and activity"),
    ("INSERT INTO activity VALUES ('ann', '{')", "activity of ann", "evaluations and activity"),
]


@pytest.mark.parametrize(("change", "told", "costs"), DAMAGE, ids=[d[0] for d in DAMAGE])
def test_damage_is_named(whole: Path, tmp_path: Path, change: str, told: str, costs: str) -> None:
    path = shutil.copy(whole, tmp_path / "run.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change, {"junk": b"junk"} if ":junk" in change else {})
        connection.commit()
    found = check_store(path)
    assert any(re.search(told, each.what) and each.costs == costs for each in found.damaged)
    assert costs not in found.works


def test_a_file_that_is_no_store_has_nothing_that_works(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(b"junk" * 1000)
    found = check_store(path)
    assert found.works == []
    assert "not a database" in found.damaged[0].what


def test_a_page_that_was_overwritten_is_found(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = open_store(path)
    store.create({}, b"model 0", b"state 0")
    epoch = led(store)
    sent = [new("ann", str(i), bytes(100), base_version=0) for i in range(3000)]
    store.publish(next_version(store, epoch, [seq for _, seq in outcomes(store, *sent)]))
    store.close()
    size = path.stat().st_size
    for page in range(8, size // 32768, 4):
        with path.open("r+b") as file:
            file.seek(page * 32768)
            file.write(bytes(4096))
    found = CliRunner().invoke(app, ["store", "check", str(path)])
    assert found.exit_code == 1
    assert "Damaged: " in found.output
    assert "Still works: " in found.output


def test_the_command_says_that_all_is_well(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = open_store(path)
    store.create({}, b"model 0", b"state 0")
    store.close()
    found = CliRunner().invoke(app, ["store", "check", str(path)])
    assert found.exit_code == 0, found.output
    assert "Everything is as it was written." in found.output
    assert CliRunner().invoke(app, ["store", "check", str(tmp_path / "no.db")]).exit_code == 2
