"""What a store promises to several who use it at once, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anarchic.errors import Deposed
from anarchic.server import records
from anarchic.server.accounts import accounts, accounts_mark, put_account
from anarchic.server.records import Account
from anarchic.server.store import Store
from tests.server.conftest import Opener
from tests.server.stored import everything, led, new, next_version, outcomes, queued


def test_one_leads_and_the_next_has_a_higher_epoch(opened: Opener, store: Store) -> None:
    other = opened()
    assert (store.lead(), other.lead()) == (1, None)
    assert (store.still_leads(), other.still_leads()) == (True, False)
    store.resign()
    assert not store.still_leads()
    assert other.lead() == 2
    assert store.lead() is None
    other.close()
    assert store.lead() == 3


def test_a_deposed_leader_cannot_publish(opened: Opener, store: Store) -> None:
    other = opened()
    outcomes(store, new("a", "1"))
    late = next_version(store, led(store), [1])
    store.resign()
    assert other.lead() == 2
    before = everything(other)
    with pytest.raises(Deposed, match="epoch 2"):
        store.publish(late)
    assert everything(other) == before
    other.publish(next_version(other, 2, [1]))


def test_a_leader_is_deposed_though_another_publishes_while_it_is_refused(
    opened: Opener, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In PostgreSQL each statement of a transaction that writes sees a moment of its own."""
    other = opened()
    if not store.shared:
        pytest.skip("here nobody writes while another does")
    outcomes(store, new("a", "1"))
    late = next_version(store, led(store), [1])
    store.resign()
    epoch, read = led(other), records.rows_of

    def publish_after(*asked: Any) -> Any:
        monkeypatch.setattr(records, "rows_of", read)
        found = read(*asked)
        other.publish(next_version(other, epoch, [1]))
        return found

    monkeypatch.setattr(records, "rows_of", publish_after)
    with pytest.raises(Deposed, match="stands at version 0, epoch 2"):
        store.publish(late)
    run = other.run()
    assert run is not None
    assert (run.version, run.folded) == (1, 1)


def test_stores_that_append_the_same_ids_at_once_accept_each_once(opened: Opener) -> None:
    stores = [opened() for _ in range(3)]
    stores[0].create({}, b"m", b"s")
    start = threading.Barrier(3)

    def push(number: int) -> list[tuple[str, int]]:
        start.wait()
        found = []
        for turn in range(10):
            names = [f"{turn}-{i}" for i in range(4)]
            if number % 2:
                names.reverse()
            found += outcomes(stores[number], *(new("w", name) for name in names))
        return found

    with ThreadPoolExecutor(3) as pool:
        found = [pair for pairs in pool.map(push, range(3)) for pair in pairs]
    accepted = [seq for outcome, seq in found if outcome == "accepted"]
    assert len(accepted) == len(set(accepted)) == 40
    assert {seq for _, seq in found} == set(accepted)
    assert sorted(update.seq for update in queued(stores[0], 99)) == sorted(accepted)


def test_accounts_are_added_changed_and_seen_by_others(opened: Opener, store: Store) -> None:
    other = opened()
    assert accounts(store) == {}
    put_account(other, Account("ann", b"\1" * 32, revoked=False))
    put_account(other, Account("bob", b"\2" * 32, revoked=False))
    put_account(other, Account("ann", b"\3" * 32, revoked=True))
    assert accounts(store) == {
        "ann": Account("ann", b"\3" * 32, revoked=True),
        "bob": Account("bob", b"\2" * 32, revoked=False),
    }


def test_every_change_of_an_account_leaves_another_mark(opened: Opener, store: Store) -> None:
    other = opened()
    marks = [accounts_mark(store)]
    for account in (
        Account("ann", b"\1" * 32, revoked=False),
        Account("bob", b"\2" * 32, revoked=False),
        Account("ann", b"\3" * 32, revoked=False),
        Account("ann", b"\3" * 32, revoked=True),
    ):
        put_account(other, account)
        marks.append(accounts_mark(store))
        assert accounts_mark(store) == marks[-1] == accounts_mark(other)
    assert len(set(marks)) == 5
    assert set(accounts(store)) == {"ann", "bob"}


def test_evaluations_come_by_version(store: Store) -> None:
    store.add_evaluation(2, {"accuracy": 0.5})
    store.add_evaluation(1, {"accuracy": 0.25, "loss": float("inf")})
    store.add_evaluation(2, {"accuracy": 0.75})
    assert store.evaluations(limit=9) == [
        (1, {"accuracy": 0.25, "loss": float("inf")}),
        (2, {"accuracy": 0.75}),
    ]
    assert store.evaluations(limit=1) == [(2, {"accuracy": 0.75})]


@pytest.mark.slow
def test_a_waiting_thread_is_woken_by_another_writer(opened: Opener, store: Store) -> None:
    other = opened()
    store.wait(0)
    time.sleep(0.5)  # PostgreSQL's listener says hello
    store.wait(0)
    started = time.monotonic()
    store.wait(0.3)
    assert 0.25 < time.monotonic() - started < 2
    timer = threading.Timer(0.2, lambda: outcomes(other, new("a", "1")))
    timer.start()
    started = time.monotonic()
    store.wait(20)
    assert time.monotonic() - started < 5
    timer.join()


def test_a_change_between_looking_and_waiting_is_not_missed(opened: Opener, store: Store) -> None:
    other = opened()
    store.wait(0)
    time.sleep(0.5)
    store.wait(0)
    outcomes(other, new("a", "1"))
    time.sleep(0.3)
    started = time.monotonic()
    store.wait(20)
    assert time.monotonic() - started < 5


def test_readers_take_turns_with_a_busy_writer(store: Store) -> None:
    stop = threading.Event()
    body = bytes(200_000)

    def write() -> None:
        number = 0
        while not stop.is_set():
            outcomes(store, *(new("w", f"{number}-{i}", body) for i in range(4)))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        slowest = 0.0
        for _ in range(20):
            started = time.monotonic()
            assert store.model(0) == b"model 0"
            accounts(store)
            slowest = max(slowest, time.monotonic() - started)
    finally:
        stop.set()
        writer.join()
    assert slowest < 3
