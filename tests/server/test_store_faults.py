"""Full, read-only and damaged disks: a clear refusal, never a wrong model."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anarchic.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from anarchic.server.store import Store, open_store
from tests.server.postgres import PostgresServer
from tests.server.stored import new, next_version, queued, state_of


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, where we may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(store: Store) -> int:
    """Append until there is no room; how many updates were accepted."""
    body, accepted = os.urandom(500_000), []

    def append() -> None:
        for number in range(1000):
            store.append([new("w", str(number), body)])
            accepted.append(number)

    with pytest.raises(StoreFull, match="Free some space") as caught:
        append()
    assert caught.value.__cause__ is not None
    return len(accepted)


def still_right(store: Store, accepted: int) -> None:
    """All that was accepted is there, and goes on once room is made by folding."""
    assert [row.id for row in store.trace()] == [str(number) for number in range(accepted)]
    assert store.model(0) == b"model 0"
    assert state_of(store) == (b"state 0", {})


def test_a_full_sqlite_file_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """The limit is SQLite's own (max_page_count), so that this runs everywhere."""
    store = open_store(tmp_path / "run.db")
    store.create({}, b"model 0", b"state 0")
    with store._database.reading() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 60")
    accepted = fill(store)
    assert accepted > 1
    still_right(store, accepted)
    body = bytes(500_000)
    assert store.append([new("w", str(accepted), body)])[0].outcome == "accepted"
    still_right(store, accepted + 1)
    store.close()


def test_a_full_disk_under_sqlite(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 12) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(4_000_000))
        store = open_store(disk / "run.db")
        store.create({}, b"model 0", b"state 0")
        accepted = fill(store)
        assert accepted > 1
        still_right(store, accepted)
        with pytest.raises(StoreFull):
            store.append([new("w", "x", bytes(3_000_000))])
        epoch = store.lead()
        assert epoch == 1
        still_right(store, accepted)
        ballast.unlink()
        body = bytes(500_000)
        assert store.append([new("w", str(accepted), body)])[0].outcome == "accepted"
        store.publish(next_version(store, epoch, [seq for seq, _ in store.waiting()]))
        assert store.waiting() == []
        assert store.model(1) == b"model 1"
        store.close()


def test_a_full_disk_under_postgres(postgres: PostgresServer, tmp_path: Path) -> None:
    with small_disk(postgres.home / "small", 12) as disk:
        shutil.chown(disk, postgres.user or os.getuid())
        postgres.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
        place = postgres.new_place().replace("options=", "options=-cdefault_tablespace%3Dsmall%20")
        store = open_store(place)
        store.create({}, b"model 0", b"state 0")
        accepted = fill(store)
        assert accepted > 1
        still_right(store, accepted)
        assert store.append([new("w", str(accepted), b"x")])[0].outcome == "accepted"
        store.close()
        schema = place.rsplit("%3D", 1)[1]
        postgres.sql(f"DROP SCHEMA {schema} CASCADE")
        postgres.sql("CHECKPOINT")
        postgres.sql("DROP TABLESPACE small")


def test_a_read_only_disk_can_be_read_and_says_why_it_cannot_be_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 12) as disk:
        store = open_store(disk / "run.db")
        store.create({}, b"model 0", b"state 0")
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        store = open_store(disk / "run.db")
        assert store.model(0) == b"model 0"
        with pytest.raises(StoreUnavailable, match="writable"):
            store.append([new("a", "1")])
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert store.append([new("a", "1")])[0].outcome == "accepted"
        store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to anything")
def test_a_read_only_file_says_why_it_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = open_store(path)
    store.create({}, b"model 0", b"state 0")
    store.close()
    path.chmod(0o400)
    store = open_store(path)
    with pytest.raises(StoreUnavailable, match="writable"):
        store.append([new("a", "1")])
    store.close()


def test_a_read_only_database_says_so(postgres: PostgresServer) -> None:
    place = postgres.new_place()
    store = open_store(place)
    store.create({}, b"m", b"s")
    store.close()
    store = open_store(place.replace("options=", "options=-cdefault_transaction_read_only%3Don%20"))
    with pytest.raises(StoreUnavailable, match="read-only"):
        store.append([new("a", "1")])
    store.close()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="its directory exists"):
        open_store(tmp_path / "missing" / "run.db")


@pytest.mark.parametrize("content", [b"", b"not a database, just some text " * 9999])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"backup"):
        open_store(path)
    assert path.read_bytes() == content


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE run (x)")
    connection.close()
    with pytest.raises(StoreCorrupt, match="not a store of anarchic"):
        open_store(path)


def test_a_file_that_another_process_holds_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anarchic.server.sqlite.BUSY_S", 0.2)
    store = open_store(tmp_path / "run.db")
    store.create({}, b"m", b"s")
    holder = sqlite3.connect(tmp_path / "run.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    for use in (lambda: store.append([new("a", "1")]), store.run):
        with pytest.raises(StoreUnavailable, match="Another process"):
            use()
    holder.close()
    assert store.append([new("a", "1")])[0].outcome == "accepted"
    store.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path / "run.db")
    store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.run()


def filled(path: Path) -> None:
    store = open_store(path)
    store.create({"rule": "afa-cs"}, b"model 0" * 5000, b"state 0" * 5000)
    store.append([new(f"w{i % 3}", str(i), bytes([i]) * 3000) for i in range(40)])
    epoch = store.lead()
    assert epoch is not None
    rows = {f"w{i}": bytes([i]) * 3000 for i in range(3)}
    store.publish(next_version(store, epoch, range(1, 31), rows=rows, model=b"model 1" * 5000))
    store.close()


def contents(path: Path) -> list[object]:
    """Whatever a server would base a model on."""
    store = open_store(path)
    try:
        trace = [(row.order, row.seq, row.worker, row.id, row.norm) for row in store.trace()]
        found = [store.run(), state_of(store), store.model(0), store.model(1), queued(store, 99)]
        return [*found, trace, store.waiting()]
    finally:
        store.close()


@pytest.mark.slow
def test_flipped_bytes_are_noticed_or_harmless(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.db", tmp_path / "bad.db"
    filled(good)
    right, data = contents(good), good.read_bytes()
    rng = random.Random(1)
    used = [place for place in range(len(data)) if data[place]]
    noticed = 0
    for place in rng.sample(used, 150) + rng.sample(range(len(data)), 50):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        bad.write_bytes(damaged)
        try:
            assert contents(bad) == right, f"byte {place} changed what is served"
        except StoreError:
            noticed += 1
    assert noticed > 50


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_noticed(tmp_path: Path, share: float) -> None:
    path = tmp_path / "run.db"
    filled(path)
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(StoreCorrupt, match="backup"):
        contents(path)


def test_dropped_bodies_make_room_for_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = open_store(path)
    store.create({}, b"model 0", b"state 0")
    epoch = store.lead()
    assert epoch is not None
    body, sizes = os.urandom(300_000), []
    for turn in range(12):
        receipts = store.append([new("w", f"{turn}-{i}", body) for i in range(8)])
        store.publish(next_version(store, epoch, [receipt.seq for receipt in receipts]))
        sizes.append(path.stat().st_size)
    assert sizes[-1] == sizes[3]
    assert (tmp_path / "run.db-journal").stat().st_size <= 2 * sizes[-1]
    store.close()
