"""Processes that die, stop, or get in each other's way."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from anarchic.errors import StoreUnavailable
from anarchic.server.accounts import accounts
from anarchic.server.store import Store, open_store
from tests.server.postgres import PostgresServer
from tests.server.pusher import EMPTY, check
from tests.server.stored import new, next_version, queued

ROOT = Path(__file__).parents[2]


ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def run_python(code: str, *words: str) -> None:
    command = [sys.executable, "-c", code, *words]
    subprocess.run(command, check=True, cwd=ROOT, env=ENVIRONMENT, timeout=20)


@contextmanager
def pusher(place: str, name: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server.pusher", place, name],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def answered(lines: list[str]) -> list[str]:
    """Names of the updates whose acceptance was told. A last line cut short does not count."""
    whole = [line for line in lines if line.endswith("]\n") and line.startswith("accepted")]
    return [name for line in whole for name in json.loads(line.removeprefix("accepted "))]


def killed_after(place: str, name: str, delay_s: float) -> list[str]:
    """What it had said when it was killed, ``delay_s`` after its first word."""
    with pusher(place, name) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        timer = threading.Timer(delay_s, process.kill)
        timer.start()
        lines += process.stdout
        timer.join()
    return lines


def survive(place: str, kills: int) -> None:
    store = open_store(place)
    store.create({}, b"model", EMPTY)
    rng = random.Random(kills)
    accepted: list[str] = []
    for number in range(kills):
        accepted += answered(killed_after(place, str(number), rng.uniform(0, 0.3)))
        check(store, accepted)
    assert len(accepted) >= 3 * kills
    store.close()


@pytest.mark.slow
def test_accepted_updates_survive_kills_and_nothing_is_half_done(place: str) -> None:
    survive(place, kills=3)


@pytest.mark.chaos
def test_accepted_updates_survive_many_kills(place: str) -> None:
    survive(place, kills=25)


def test_the_lead_is_free_when_its_holder_is_killed(place: str) -> None:
    store = open_store(place)
    store.create({}, b"model", EMPTY)
    with pusher(place, "x") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert store.lead() is None
        process.kill()
        process.wait()
        started = time.monotonic()
        while (epoch := store.lead()) is None:
            assert time.monotonic() - started < 5
            time.sleep(0.02)
        assert epoch == 2
    store.close()


@pytest.mark.slow
def test_a_token_is_added_by_another_process_while_the_server_writes(
    place: str, store: Store
) -> None:
    stop = threading.Event()
    body = bytes(1_000_000)

    def write() -> None:
        number = 0
        while not stop.is_set():
            store.append([new("w", f"{number}-{i}", body) for i in range(4)])
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        run_python(
            "import sys; from anarchic.server.store import open_store\n"
            "from anarchic.server.accounts import put_account\n"
            "from anarchic.server.records import Account\n"
            "store = open_store(sys.argv[1])\n"
            "for number in range(5): put_account(store, Account(f'w{number}', b'hash', False))",
            place,
        )
        assert len(accounts(store)) == 5
    finally:
        stop.set()
        writer.join()


@pytest.fixture
def twins(postgres: PostgresServer) -> Iterator[tuple[Store, Store]]:
    """Two replicas of one run in PostgreSQL."""
    place = postgres.new_place()
    stores = open_store(place), open_store(place)
    stores[0].create({}, b"m", b"s")
    yield stores
    for store in stores:
        store.close()


def test_an_update_committed_late_with_a_lower_seq_is_found(
    twins: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = twins
    inserted, go = threading.Event(), threading.Event()

    def pause(connection: object) -> None:
        inserted.set()
        assert go.wait(10)

    monkeypatch.setattr(slow._database, "announce", pause)
    thread = threading.Thread(target=lambda: slow.append([new("slow", "1")]))
    thread.start()
    assert inserted.wait(10)
    (receipt,) = quick.append([new("quick", "1")])
    epoch = quick.lead()
    assert epoch == 1
    assert [update.worker for update in queued(quick, 9)] == ["quick"]
    quick.publish(next_version(quick, epoch, [receipt.seq]))
    go.set()
    thread.join()
    (late,) = queued(quick, 9)
    assert late.worker == "slow"
    assert late.seq < receipt.seq
    assert quick.waiting() == [(late.seq, "slow")]


@pytest.mark.parametrize("commits", [True, False])
def test_an_id_that_another_replica_is_inserting_now_is_waited_for(
    twins: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    slow, quick = twins
    inserted, go = threading.Event(), threading.Event()

    def pause(connection: object) -> None:
        inserted.set()
        assert go.wait(10)
        if not commits:
            raise StoreUnavailable("gone")

    def append_slowly() -> None:
        try:
            slow.append([new("a", "1")])
        except StoreUnavailable:
            assert not commits

    monkeypatch.setattr(slow._database, "announce", pause)
    thread = threading.Thread(target=append_slowly)
    thread.start()
    assert inserted.wait(10)
    threading.Timer(0.3, go.set).start()
    found = [r.outcome for r in quick.append([new("a", "1"), new("b", "1")])]
    thread.join()
    assert found == ["duplicate" if commits else "accepted", "accepted"]
    assert len(queued(quick, 9)) == 2


def test_a_leader_that_lost_its_connection_knows_and_another_takes_over(
    twins: tuple[Store, Store], postgres: PostgresServer
) -> None:
    old, other = twins
    assert old.lead() == 1
    publication = next_version(old, 1, [])
    postgres.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    )
    assert not old.still_leads()
    assert other.lead() == 2
    assert old.lead() is None
    with pytest.raises(Exception, match="another process leads"):
        old.publish(publication)


@pytest.mark.slow
def test_a_leader_that_is_stopped_is_replaced(postgres: PostgresServer) -> None:
    place = postgres.new_place()
    store = open_store(place)
    store.create({}, b"model", EMPTY)
    with pusher(place, "x") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        while store.lead() is None:
            assert time.monotonic() - started < 30
            time.sleep(0.2)
        process.send_signal(signal.SIGCONT)
    check(store, [])
    store.close()


@pytest.mark.slow
def test_a_restart_of_the_database_is_survived(postgres: PostgresServer) -> None:
    store = open_store(postgres.new_place())
    store.create({}, b"m", b"s")
    assert store.lead() == 1
    store.append([new("a", "1")])
    store.wait(0)
    postgres.stop(signal.SIGQUIT)
    try:
        for use in (lambda: store.append([new("a", "2")]), store.run, store.lead):
            with pytest.raises(StoreUnavailable, match="Check that the database runs"):
                use()
        assert not store.still_leads()
        store.wait(0.01)
    finally:
        postgres.start()
    assert [r.outcome for r in store.append([new("a", "1"), new("a", "2")])] == [
        "duplicate",
        "accepted",
    ]
    assert store.lead() == 2
    started = time.monotonic()
    time.sleep(1.5)  # the listener comes back
    store.wait(0)
    threading.Timer(0.1, lambda: store.append([new("a", "3")])).start()
    store.wait(20)
    assert time.monotonic() - started < 10
    store.close()


def test_a_database_that_cannot_be_reached_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"\*\*\*@127.0.0.1:1/x") as caught:
        open_store("postgresql://user:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, Exception)


def test_a_server_does_not_idle_in_a_transaction(postgres: PostgresServer) -> None:
    store = open_store(postgres.new_place())
    store.create({}, b"m", b"s")
    trace = store.trace()
    next(trace, None)
    with psycopg.connect(postgres.url()) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        assert connection.execute(query).fetchone() == (0,)
    store.close()


def test_a_connection_that_cannot_be_prepared_is_closed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whoever asks for the lead twice a second would use up the database's connections."""
    store = open_store(postgres.new_place())
    store.create({}, b"model 0", b"state 0")
    opened = []

    def refuse(connection: psycopg.Connection[Any], _: object) -> None:
        opened.append(connection)
        raise psycopg.OperationalError("not now")

    monkeypatch.setattr("anarchic.server.postgres._prepare", refuse)
    with pytest.raises(StoreUnavailable, match="not now"):
        store.lead()
    assert [connection.closed for connection in opened] == [True]
    store.close()
