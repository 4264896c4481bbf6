"""What every store promises, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from anarchic.errors import ConfigError, Deposed, StoreCorrupt, StoreError, StoreUnavailable
from anarchic.server.accounts import accounts
from anarchic.server.records import StoredRun, epoch_of
from anarchic.server.store import Store, open_store
from tests.server.conftest import Opener
from tests.server.stored import everything, led, new, next_version, outcomes, queued, state_of


def test_a_fresh_store_holds_nothing(opened: Opener) -> None:
    store = opened()
    assert store.run() is None
    assert (queued(store, 9), store.waiting(), list(store.trace())) == ([], [], [])
    assert (accounts(store), store.evaluations(9), store.model(0)) == ({}, [], None)
    for ask in (store.standing, store.lead):
        with pytest.raises(StoreError, match="create one first"):
            ask()


def test_a_run_is_created_once_and_is_there_after_reopening(opened: Opener) -> None:
    first = opened()
    run = first.create({"rule": "afa-cd", "m": 4}, b"m", b"s")
    assert run == StoredRun(
        run.id, {"rule": "afa-cd", "m": 4}, 0, epoch=0, folded=0, keep_payloads=False
    )
    with pytest.raises(ConfigError, match="already holds a run"):
        first.create({}, b"other", b"other")
    first.close()
    again = opened()
    assert again.run() == run
    assert (again.model(0), state_of(again)) == (b"m", (b"s", {}))


def test_an_id_counts_once_and_another_body_is_a_conflict(store: Store) -> None:
    assert outcomes(store, new("a", "1")) == [("accepted", 1)]
    mixed = outcomes(store, new("a", "1"), new("b", "1"), new("a", "1", b"other"), new("b", "2"))
    assert [outcome for outcome, _ in mixed] == ["duplicate", "accepted", "conflict", "accepted"]
    assert mixed[0][1] == mixed[2][1] == 1
    assert [update.seq for update in queued(store, 9)] == [1, mixed[1][1], mixed[3][1]]
    assert store.append([]) == []


def test_duplicates_and_conflicts_within_a_group_follow_the_first(store: Store) -> None:
    found = outcomes(
        store, new("a", "1", b"x"), new("a", "1", b"y"), new("a", "1", b"x"), new("b", "1", b"y")
    )
    assert [outcome for outcome, _ in found] == ["accepted", "conflict", "duplicate", "accepted"]
    assert found[0][1] == found[1][1] == found[2][1]
    assert [update.body for update in queued(store, 9)] == [b"x", b"y"]


def test_a_duplicate_is_known_after_it_was_folded(store: Store) -> None:
    outcomes(store, new("a", "1"))
    store.publish(next_version(store, led(store), [1]))
    assert outcomes(store, new("a", "1"), new("a", "1", b"z")) == [
        ("duplicate", 1),
        ("conflict", 1),
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bodies_of_any_kind_and_size_come_back(store: Store, kind: type) -> None:
    large = bytes(range(256)) * 5000
    outcomes(store, new("a", "1", kind(large)), new("a", "2", kind(b"")))
    assert [bytes(update.body) for update in queued(store, 9)] == [large, b""]
    assert (store.body(1), store.body(99)) == (large, None)


def test_the_trace_tells_everything_in_the_order_of_folding(store: Store) -> None:
    outcomes(store, *(new("a", str(i), local_lr=0.5, base_version=i) for i in range(4)))
    epoch = led(store)
    store.publish(next_version(store, epoch, [3, 1]))
    store.publish(next_version(store, epoch, [4]))
    trace = list(store.trace())
    assert [(row.seq, row.order, row.version) for row in trace] == [
        (3, 0, 1),
        (1, 1, 1),
        (4, 2, 2),
        (2, None, None),
    ]
    row = trace[0]
    assert (row.worker, row.id, row.base_version, row.local_steps) == ("a", "2", 2, 5)
    assert (row.local_lr, row.samples, row.norm, row.received_s) == (0.5, 320, 1.5, 1e9 + 0.25)
    run = store.run()
    assert run is not None
    assert (run.version, run.epoch, run.folded) == (2, epoch, 3)


def test_a_trace_is_of_one_moment_though_it_is_read_in_pieces(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anarchic.server.store.TRACE_CHUNK", 2)
    outcomes(store, *(new("a", str(i)) for i in range(6)))
    epoch = led(store)
    store.publish(next_version(store, epoch, [1, 2, 3]))
    trace = store.trace()
    rows = [next(trace)]
    store.publish(next_version(store, epoch, [5]))
    outcomes(store, new("a", "new"))
    rows += trace
    assert [(row.seq, row.order) for row in rows] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, None),
        (5, None),
        (6, None),
    ]


def test_pending_gives_the_oldest_and_never_skips_an_earlier_one(store: Store) -> None:
    outcomes(store, *(new("a", str(i)) for i in range(5)))
    assert [update.seq for update in queued(store, 2)] == [1, 2]
    store.publish(next_version(store, led(store), [5, 2]))
    assert [update.seq for update in queued(store, 9)] == [1, 3, 4]
    assert store.waiting() == [(1, "a"), (3, "a"), (4, "a")]
    assert store.waiting(2) == [(3, "a"), (4, "a")]
    assert store.waiting(first=3, limit=1) == [(3, "a")]
    known = new("a", "2")
    assert store.seen("a", "2", known.digest) == 3
    assert store.seen("a", "2", b"another") is None
    assert store.seen("b", "2", known.digest) is None


def test_publishing_drops_bodies_and_old_models(opened: Opener) -> None:
    store = opened(history=2, history_bytes=0)
    store.create({}, b"model 0", b"state 0")
    outcomes(store, *(new("a", str(i)) for i in range(3)))
    epoch = led(store)
    for seq in (1, 2, 3):
        store.publish(next_version(store, epoch, [seq]))
    assert [store.body(seq) for seq in (1, 2, 3)] == [None] * 3
    assert [store.model(v) for v in range(4)] == [None, None, b"model 2", b"model 3"]
    assert state_of(store) == (b"state 3", {})


def test_bodies_stay_where_they_are_to_be_kept(opened: Opener) -> None:
    store = opened(keep_payloads=True)
    store.create({}, b"model 0", b"state 0")
    outcomes(store, new("a", "1"))
    store.publish(next_version(store, led(store), [1]))
    assert store.body(1) == b"body"
    assert queued(store, 9) == []


@pytest.mark.parametrize("keep", [True, False])
def test_a_run_records_whether_it_keeps_payloads(opened: Opener, keep: bool) -> None:
    """From its first moment on, and until a server is told otherwise and publishes."""

    def published(worker: str, **how: bool) -> tuple[bool, bool]:
        store = opened(**how)
        (receipt,) = store.append([new(worker, "1")])
        store.publish(next_version(store, led(store), [receipt.seq]))
        store.resign()
        run = store.run()
        assert run is not None
        return run.keep_payloads, store.body(receipt.seq) is not None

    first = opened(keep_payloads=keep).create({}, b"model 0", b"state 0")
    assert first.keep_payloads is keep
    again = opened().run()
    assert again is not None
    assert again.keep_payloads is keep
    assert published("a") == (keep, keep)
    assert published("b", keep_payloads=not keep) == (not keep, not keep)
    assert published("c") == (not keep, not keep)


def test_epochs_have_names_and_those_that_published_nothing_are_forgotten(
    opened: Opener, store: Store
) -> None:
    for _ in range(3):
        epoch = led(store)
        store.resign()
    assert [version for version, _ in store.epochs()] == [0]
    led(store)
    store.publish(next_version(store, epoch + 1, []))
    store.publish(next_version(store, epoch + 1, []))
    store.resign()
    led(store)
    epochs = store.standing().epochs
    assert epochs == store.epochs() == opened().epochs()
    (first, one), (second, two) = epochs
    assert (first, second) == (0, 2)
    assert one != two
    assert [epoch_of(epochs, version) for version in range(4)] == [None, one, one, two]
    with store._database.writing() as connection:
        connection.execute(text("UPDATE epochs SET version = 1 WHERE version = 2"))
    with pytest.raises(StoreCorrupt, match="epoch 5 after version 1 is damaged"):
        store.standing()


def test_dropped_rows_are_listed_by_version_and_name(store: Store) -> None:
    epoch = led(store)
    assert store.revoked() == {}
    store.publish(next_version(store, epoch, [], revoked=[(0, "b"), (0, "B"), (0, "a")]))
    store.publish(next_version(store, epoch, [], revoked=[(1, "a")]))
    assert store.revoked() == {0: ["B", "a", "b"], 1: ["a"]}


def test_rows_are_replaced_and_forgotten_with_the_version(store: Store) -> None:
    epoch = led(store)
    store.publish(next_version(store, epoch, [], rows={"a": b"1", "b": b"2"}))
    store.publish(next_version(store, epoch, [], rows={"b": b"3", "c": b"4"}, forgotten=["a"]))
    assert state_of(store) == (b"state 2", {"b": b"3", "c": b"4"})


def test_a_publication_without_a_new_version_leaves_the_model(store: Store) -> None:
    epoch = led(store)
    store.publish(next_version(store, epoch, [], version=0, forgotten=["a"], model=b"?"))
    assert store.model(0) == b"model 0"
    assert state_of(store) == (b"state 1", {})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epoch": 0}, Deposed),
        ({"epoch": 2}, Deposed),
        ({"previous": 0, "version": 1}, Deposed),
        ({"previous": 2, "version": 3}, Deposed),
        ({"first": 0}, Deposed),  # one was folded since
        ({"folded": [(1, 2)]}, StoreCorrupt),  # it was folded before
        ({"folded": [(2, 2), (2, 2)]}, StoreCorrupt),
        ({"folded": [(2, 2), (99, 2)]}, StoreCorrupt),
    ],
)
def test_a_refused_publication_changes_nothing(
    store: Store, changes: dict[str, object], error: type[Exception]
) -> None:
    outcomes(store, new("a", "1"), new("a", "2"))
    assert store.lead() == 1
    store.publish(next_version(store, 1, [1], rows={"a": b"row"}))
    before = everything(store)
    right = next_version(store, 1, [2], rows={"a": b"x"}, forgotten=["a"])
    with pytest.raises(error):
        store.publish(replace(right, **changes))
    assert everything(store) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": float("nan")},
        {"local_lr": float("inf")},
        {"samples": 2**63},
        {"worker": "a\0b"},
        {"id": "\ud800"},
        {"id": "x" * 1001},
    ],
)
def test_values_that_a_database_cannot_hold_are_refused(
    store: Store, changes: dict[str, object]
) -> None:
    with pytest.raises(StoreError, match="cannot be stored"):
        store.append([new("a", "1"), replace(new("a", "2"), **changes)])
    assert outcomes(store, new("a", "1"), new("é" * 400, "2" * 1000))[1][0] == "accepted"


def test_models_beyond_what_a_database_holds_are_refused(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    monkeypatch.setattr(store._database, "largest", 10)
    with pytest.raises(ConfigError, match="smaller model"):
        store.create({}, b"eleven byte", b"")
    with pytest.raises(ConfigError, match="state of the rule has 11 bytes"):
        store.create({}, b"", b"eleven byte")
    assert store.run() is None


def test_an_update_that_lost_its_body_is_noticed(store: Store) -> None:
    outcomes(store, new("a", "1"), new("a", "2"))
    with store._database.writing() as connection:
        connection.execute(text("UPDATE payloads SET body = :other WHERE seq = 1"), {"other": b"x"})
        connection.execute(text("DELETE FROM payloads WHERE seq = 2"))
    with pytest.raises(StoreCorrupt, match="body of update 1 by a is damaged"):
        queued(store, 1)
    with pytest.raises(StoreCorrupt):
        queued(store, 2)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE models SET body = 'other'",
        "UPDATE models SET version = 9 - version",
        "UPDATE state SET body = 'other'",
        "UPDATE run SET version = 0",
        "UPDATE run SET folded = 2",
        "UPDATE run SET settings = '{}'",
        "UPDATE rows SET worker = 'b'",
        "UPDATE updates SET norm = 2.5",
        "UPDATE updates SET worker = 'b'",
        'UPDATE updates SET "order" = 7',
        "DELETE FROM state",
    ],
)
def test_damage_is_noticed_and_nothing_is_served_from_it(store: Store, damage: str) -> None:
    outcomes(store, new("a", "1"))
    store.publish(next_version(store, led(store), [1], rows={"a": b"row"}))
    with store._database.writing() as connection:
        connection.execute(text(damage))
    with pytest.raises(StoreCorrupt):
        _ = [*store.trace(), state_of(store), store.model(1), store.model(8)]


def test_look_ups_use_indices_however_long_the_trace(store: Store) -> None:
    lite = not store.shared
    queries = {
        "updates_order" if lite else "updates_pending": "SELECT seq FROM updates"
        ' WHERE "order" IS NULL ORDER BY seq LIMIT 5',
        "updates_order": 'SELECT max("order") FROM updates',
        "sqlite_autoindex_updates_1" if lite else "updates_once": "SELECT seq FROM updates"
        " WHERE (worker, id) IN (VALUES ('a', '1'), ('b', '2'))",
    }
    with store._database.reading() as connection:
        if not lite:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        for index, query in queries.items():
            explain = "EXPLAIN QUERY PLAN " if lite else "EXPLAIN "
            plan = str(connection.execute(text(explain + query)).all())
            assert index in plan
            assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("where", ["sqlite://", "mysql://host/db", "sqlite:///:memory:"])
def test_addresses_that_cannot_be_a_store_are_refused(where: str) -> None:
    with pytest.raises(ConfigError):
        open_store(where)


def test_a_store_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir(mode=0o755)
    with pytest.raises(StoreUnavailable, match="runs is a directory, and a store is a file"):
        open_store(folder)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert list(folder.iterdir()) == []


def test_a_history_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="history=0"):
        open_store("never-made", history=0)
