"""A compacted trace is shorter, and each update still counts at most once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.errors import ConfigError, RunError
from anarchic.server import compact as module
from anarchic.server import records
from anarchic.server.compact import Compactor, compact, compact_store, compactor_of
from anarchic.server.refold import refold
from anarchic.server.replay import timetable_of
from anarchic.server.rollbacks import kept_versions
from anarchic.server.settings import RunSettings, ServerSettings
from anarchic.server.store import Store, open_store
from tests.server.conftest import Opener
from tests.server.live import serving, stored, until
from tests.server.make import body
from tests.server.stored import led, new, next_version, outcomes
from tests.waiting import until as wait_until


def grown(store: Store, versions: int, *, per_version: int = 2, received_s: float = 1e9) -> None:
    """Publish versions, each of updates that build on the one before."""
    epoch, run = led(store), store.run()
    assert run is not None
    for version in range(run.version, run.version + versions):
        facts = {"base_version": version, "received_s": received_s + version}
        sent = [new(f"w{i}", f"{version}", **facts) for i in range(per_version)]
        seqs = [seq for _, seq in outcomes(store, *sent)]
        store.publish(next_version(store, epoch, seqs))
    store.resign()


def orders(store: Store) -> list[int | None]:
    return [row.order for row in store.trace()]


def test_what_made_old_versions_goes_and_ids_of_that_time_are_refused(store: Store) -> None:
    grown(store, 20)
    outcomes(store, new("waits", "1", base_version=2))
    done = compact(store, before=11)
    run = store.run()
    assert run is not None
    assert (done.updates, done.base_from) == (20, 10)
    assert (run.trace_from, run.base_from, run.folded) == (20, 10, 40)
    assert orders(store) == [*range(20, 40), None]
    # An old id again, a new one from that time, one that is still known, one from later, one new.
    again = new("w0", "5", base_version=5, received_s=1e9 + 5)
    old = new("w0", "late", base_version=9)
    waits, known = new("waits", "1", base_version=2), new("w0", "15", base_version=15)
    found = outcomes(store, again, old, waits, known, new("w0", "fresh", base_version=10))
    assert [outcome for outcome, _ in found] == [
        "too_old", "too_old", "duplicate", "duplicate", "accepted",
    ]  # fmt: skip
    assert len(orders(store)) == 22
    store.publish(next_version(store, led(store), [seq for seq, _ in store.waiting()]))
    assert orders(store) == list(range(20, 42))
    assert compact(store, before=11).updates == 0


def test_the_last_update_and_the_highest_number_stay(store: Store) -> None:
    epoch = led(store)
    seqs = [seq for _, seq in outcomes(store, *(new("a", str(i), base_version=0) for i in "123"))]
    store.publish(next_version(store, epoch, [seqs[2]]))
    store.publish(next_version(store, epoch, [seqs[0], seqs[1]]))
    store.publish(next_version(store, epoch, []))  # as an operator's rollback does
    assert compact(store, before=3).updates == 0  # the highest number came first
    more = [seq for _, seq in outcomes(store, *(new("a", str(i), base_version=3) for i in "45"))]
    store.publish(next_version(store, epoch, more))
    store.publish(next_version(store, epoch, []))
    assert compact(store, before=5).updates == 4
    assert orders(store) == [4]
    [(outcome, seq)] = outcomes(store, new("a", "6", base_version=5))
    assert outcome == "accepted"
    assert seq > max(more)


def test_only_what_was_counted_goes(store: Store) -> None:
    grown(store, 10)
    assert compact(store, before=9, counted=lambda: 5).updates == 5
    assert compact(store, before=9, counted=lambda: 20).updates == 11


def test_many_rows_go_in_small_transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 7)
    grown(store, 20)
    assert compact(store, before=18).updates == 34
    assert orders(store) == list(range(34, 40))


def test_updates_that_were_set_aside_go_with_their_time(store: Store) -> None:
    grown(store, 3)
    epoch = led(store)
    [(_, bad)] = outcomes(store, new("bad", "1", base_version=3))
    run = store.run()
    assert run is not None
    store.publish(next_version(store, epoch, [], version=3, folded=[(bad, 0)], first=run.folded))
    store.resign()
    grown(store, 3)
    assert compact(store, before=5).updates == 6 + 1 + 2
    assert [outcome for outcome, _ in outcomes(store, new("bad", "1", base_version=3))] == [
        "too_old"
    ]


def test_old_evaluations_are_thinned_and_those_of_stored_versions_stay(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVALUATIONS", 5)
    store = opened(history=2, keep_every=10, history_bytes=0)
    store.create({}, b"model 0", b"state 0")
    grown(store, 40)
    for version in range(1, 41):
        store.add_evaluation(version, {"accuracy": version / 100})
    compact(store, before=31)
    left = [version for version, _ in store.evaluations(100)]
    assert left[-10:] == list(range(31, 41))
    assert {10, 20, 30} <= {*left}
    assert len(left) <= 10 + 3 + 5
    assert kept_versions(store) == [10, 20, 30, 38, 39, 40]  # 40 is kept for ever


def test_payloads_are_dropped_only_if_one_says_so(opened: Opener) -> None:
    store = opened(keep_payloads=True)
    store.create({}, b"model 0", b"state 0")
    grown(store, 5)
    with pytest.raises(ConfigError, match="--drop-payloads"):
        compact(store, before=4)
    assert orders(store) == list(range(10))
    assert compact(store, before=4, drop_payloads=True).updates == 6
    assert [store.body(seq) is None for seq in range(1, 11)] == [True] * 6 + [False] * 4
    for again in (refold, timetable_of):
        with pytest.raises(RunError, match=r"compacted.*its first 6 updates are gone.*backup"):
            again(store)


@pytest.mark.parametrize("before", [0, 6])
def test_a_version_that_there_is_not_is_refused(store: Store, before: int) -> None:
    grown(store, 5)
    with pytest.raises(ConfigError, match=f"from 1 to the newest, which is 5; got {before}"):
        compact(store, before=before)


def test_nothing_counts_twice_while_a_server_appends(opened: Opener) -> None:
    """Old ids are sent again and again while their rows are deleted."""
    store, beside = opened(), opened()
    if store.run() is None:
        store.create({}, b"model 0", b"state 0")
    grown(store, 60)
    stop, said = threading.Event(), set()

    def send() -> None:
        while not stop.is_set():
            sent = [new(f"w{i}", str(v), base_version=v) for v in range(58) for i in range(2)]
            said.update(outcome for outcome, _ in outcomes(store, *sent))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        for before in range(2, 59, 4):
            compact(beside, before=before)
    finally:
        stop.set()
        sending.join()
    assert said == {"duplicate", "too_old"}
    assert store.waiting() == []


def shared_by_two(opened: Opener) -> tuple[Store, Store]:
    """A store with 20 versions, opened twice, where two may write at the same time."""
    store, beside = opened(), opened()
    if not store.shared:
        pytest.skip("here nobody writes while another does")
    if store.run() is None:
        store.create({}, b"model 0", b"state 0")
    grown(store, 20)
    return store, beside


def test_an_update_that_is_dropped_while_it_is_sent_again_is_too_old(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known when it is inserted, and gone when it is looked up."""
    store, beside = shared_by_two(opened)
    find = records.find_updates

    def find_later(*asked: Any) -> Any:
        monkeypatch.setattr(records, "find_updates", find)
        compact(beside, before=11)
        return find(*asked)

    monkeypatch.setattr(records, "find_updates", find_later)
    again = new("w0", "5", base_version=5, received_s=1e9 + 5)
    assert [outcome for outcome, _ in outcomes(store, again)] == ["too_old"]


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def test_two_that_compact_at_once_never_move_the_run_back(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the first knows what it will delete, and has not deleted it yet."""
    store, beside = shared_by_two(opened)
    second = threading.Thread(target=compact, args=(beside,), kwargs={"before": 11})
    last = module._last

    def waits() -> bool:
        with store.reading() as connection:
            return connection.execute(text(WAITING)).scalar() == 1

    def last_while_another_compacts(*asked: Any) -> Any:
        monkeypatch.setattr(module, "_last", last)
        second.start()
        wait_until(lambda: not second.is_alive() or waits())
        return last(*asked)

    monkeypatch.setattr(module, "_last", last_while_another_compacts)
    compact(store, before=6)
    second.join()
    run = store.run()
    assert run is not None
    assert (run.trace_from, run.base_from) == (20, 10)
    assert orders(store) == list(range(20, 40))
    again = new("w0", "5", base_version=5, received_s=1e9 + 5)
    assert [outcome for outcome, _ in outcomes(store, again)] == ["too_old"]


def test_a_server_compacts_by_age_and_keeps_what_workers_may_build_on(store: Store) -> None:
    class Clock:
        def time(self) -> float:
            return 1e9 + 100

        monotonic = time

    grown(store, 20)
    said: list[str] = []
    compactor = Compactor(
        store, lambda event, **facts: said.append(event),
        after_s=90, max_staleness=5, clock=Clock(),
    )  # fmt: skip
    compactor.compact()
    assert orders(store) == list(range(20, 40))  # versions 1 to 10, received until 1e9 + 9
    Clock.time = lambda self: 1e9 - 500  # type: ignore[method-assign]  # it has jumped back
    compactor.compact()
    assert orders(store) == list(range(28, 40))  # versions below 15 at most
    assert said == ["compacted", "compacted"]


def test_a_run_that_keeps_payloads_is_not_compacted_by_age(opened: Opener) -> None:
    store = opened(keep_payloads=True)
    store.create({}, b"model 0", b"state 0")
    log = lambda event, **facts: None  # noqa: E731
    run = RunSettings(store="run.db", compact_after="90d")
    with pytest.raises(ConfigError, match="--no-keep-payloads"):
        compactor_of(store, run, ServerSettings(), log)
    with pytest.raises(ConfigError, match="leave one out"):
        RunSettings(store="run.db", compact_after="90d", keep_payloads=True)


def test_an_old_update_is_refused_by_the_server_and_never_folded(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "run.db"
        async with serving(path, rules={"m": 1}, keep_payloads=False) as (service, client):
            for number in range(10):
                sent = body("ann", str(number), base_version=number, seed=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda: service.published.newest.version == number + 1)  # noqa: B023
            compact_store(path, before=8)  # in the same moment as it is served
            again = await client.post(
                "/v1/updates", content=body("ann", "3", base_version=3, seed=3)
            )
            assert (again.status_code, again.json()["error"]) == (409, "too_old")
            known = await client.post(
                "/v1/updates", content=body("ann", "8", base_version=8, seed=8)
            )
            assert known.json()["status"] == "duplicate"
            fresh = await client.post("/v1/updates", content=body("ann", "x", base_version=10))
            assert fresh.status_code == 202
            await until(lambda: service.published.newest.version == 11)

    asyncio.run(scenario())
    with stored(tmp_path / "run.db") as store:
        assert orders(store) == list(range(7, 11))


def test_the_command_makes_the_file_smaller_unless_a_server_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = open_store(path)
    store.create({}, b"model 0", b"state 0")
    grown(store, 3, per_version=2000)
    words = ["store", "compact", str(path), "--before"]
    assert store.claim()
    found = CliRunner().invoke(app, [*words, "2"])
    assert found.exit_code == 0, found.output
    assert "Deleted 2000 updates" in found.output
    assert "are free for what comes" in found.output
    store.close()
    size = path.stat().st_size
    found = CliRunner().invoke(app, [*words, "3"])
    assert "MB smaller" in found.output
    assert path.stat().st_size < 0.7 * size
    assert CliRunner().invoke(app, [*words, "9"]).exit_code == 2


def test_ids_that_are_gone_are_no_damage(store: Store) -> None:
    grown(store, 5)
    compact(store, before=5)
    with store.writing() as connection:
        connection.execute(text('DELETE FROM updates WHERE "order" = 9'))
    with pytest.raises(Exception, match="The run counts 10 folded updates"):
        store.run()
