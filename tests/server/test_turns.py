"""A server without threads: every part does its next piece of work when it is told to."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import closing

import pytest

from anarchic.errors import StoreCorrupt, StoreFull, StoreUnavailable
from anarchic.server.accounts import accounts
from anarchic.server.aggregate import FOLLOW_S, RETRY_S
from anarchic.server.collect import UNKNOWN_S
from anarchic.server.fold import Folding
from anarchic.server.pending import Pending
from anarchic.server.records import Receipt
from anarchic.server.service import Service
from anarchic.server.settings import ServerSettings
from anarchic.server.store import Store, open_store
from tests.server.make import begun, body

STEP_AFTER_S = 100.0


class Clock:
    """Stands still until it is moved."""

    now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return 1e9 + self.now


@pytest.fixture
def still(tmp_path):
    """(store, service, clock) of a run in which nothing happens by itself."""
    clock = Clock()
    with closing(open_store(tmp_path / "run.db", keep_payloads=True)) as store:
        begun(store, m=2)
        settings = ServerSettings(open_enrolment=True, step_after_s=STEP_AFTER_S)
        service = Service(store, settings, lambda event, **facts: None, clock=clock)
        service.access.read()
        service.aggregator.turn(0.0)
        assert service.aggregator.leads
        yield store, service, clock


def pushed(service, worker):
    receipt = Future()
    service.collector.queue(*service.check.check(bytearray(body(worker)), None), receipt)
    return receipt


def test_updates_are_accepted_folded_and_published_turn_by_turn(still):
    store, service, _ = still
    threads = threading.active_count()
    receipts = [pushed(service, "ann"), pushed(service, "bob")]
    assert not any(receipt.done() for receipt in receipts)
    assert service.collector.write_next(0.0)
    assert [receipt.result().outcome for receipt in receipts] == ["accepted", "accepted"]
    assert not service.collector.write_next(0.0)
    assert [row.received_s for row in store.trace()] == [1e9, 1e9]
    versions = []
    for _ in range(3):
        assert service.aggregator.turn(0.0) == 0.0
        versions.append(service.published.newest.version)
    assert versions[0] == 0
    assert versions[-1] == 1
    assert threading.active_count() == threads


def test_only_the_clock_makes_a_step_of_too_few_updates(still):
    _, service, clock = still
    pushed(service, "ann")
    service.collector.write_next(0.0)
    for _ in range(3):
        service.aggregator.turn(0.0)
    clock.now += STEP_AFTER_S - 0.1
    service.aggregator.turn(0.0)
    assert service.published.newest.version == 0
    clock.now += 0.1
    service.aggregator.turn(0.0)
    assert service.published.newest.version == 1


def test_a_version_that_cannot_be_stored_is_tried_again_in_the_next_turn(still, monkeypatch):
    store, service, _ = still
    publish = Store.publish

    def broken(self, publication):
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(Store, "publish", broken)
    for worker in ("ann", "bob"):
        pushed(service, worker)
    service.collector.write_next(0.0)
    pauses = {service.aggregator.turn(0.0) for _ in range(4)}
    assert pauses == {0.0, RETRY_S}
    assert (service.published.newest.version, service.aggregator.leads) == (0, True)
    assert service.problem() is not None
    monkeypatch.setattr(Store, "publish", publish)
    service.aggregator.turn(0.0)
    assert service.published.newest.version == store.run().version == 1
    assert service.problem() is None


def test_whoever_does_not_lead_asks_again_after_a_while(still, tmp_path):
    _, first, clock = still
    with closing(open_store(tmp_path / "run.db")) as store:
        second = Service(store, log=lambda event, **facts: None, clock=clock)
        second.aggregator.turn(0.0)
        first.aggregator.finish()
        second.aggregator.turn(0.0)
        assert not second.aggregator.leads
        clock.now += FOLLOW_S
        second.aggregator.turn(0.0)
        assert second.aggregator.leads


def test_a_refused_write_is_told_until_one_succeeds_or_nobody_can_know(still, monkeypatch):
    store, service, clock = still
    append = Store.append

    def full(self, updates):
        raise StoreFull("No room left.")

    monkeypatch.setattr(Store, "append", full)
    receipt = pushed(service, "ann")
    assert service.problem() is None
    service.collector.write_next(0.0)
    assert isinstance(receipt.exception(), StoreFull)
    accounts(store)  # that the store can be read changes nothing
    assert "takes no updates" in service.problem()
    monkeypatch.setattr(Store, "append", lambda self, updates: [Receipt("duplicate", 1)])
    pushed(service, "ann")
    service.collector.write_next(0.0)  # nor that a duplicate is found, which writes nothing
    assert "takes no updates" in service.problem()
    monkeypatch.setattr(Store, "append", full)
    clock.now += UNKNOWN_S
    assert service.problem() is None
    pushed(service, "ann")
    service.collector.write_next(0.0)
    assert service.problem() is not None
    monkeypatch.setattr(Store, "append", append)
    pushed(service, "ann")
    service.collector.write_next(0.0)
    assert service.problem() is None


def test_a_transaction_that_does_not_end_is_told(still):
    store, service, _ = still
    service._patience_s = 0.0
    assert service.problem() is None
    with store.watch.transaction():
        time.sleep(0.001)
        assert "has not answered" in service.problem()
    assert service.problem() is None


def test_a_damaged_store_ends_aggregation_and_it_says_so(still, monkeypatch):
    store, service, _ = still

    def damaged(self, wait_s):
        raise StoreCorrupt("Update 1 is damaged.")

    monkeypatch.setattr(Pending, "next", damaged)
    service.aggregator.turn(0.0)
    status = service.aggregator.alive, service.aggregator.leads, store.still_leads()
    assert status == (False, False, False)
    assert "no longer aggregated" in service.problem()


def _out_of_memory(self, seq, decoded):
    raise MemoryError  # no update's fault: it is tried again for as long as it takes


def test_after_failures_the_pauses_grow_and_a_success_ends_them(still, monkeypatch):
    _, service, clock = still
    fold = Folding.fold
    for worker in ("ann", "bob"):
        pushed(service, worker)
    service.collector.write_next(0.0)
    monkeypatch.setattr(Folding, "fold", _out_of_memory)
    pauses = []
    while len(pauses) < 9:
        pause_s = service.aggregator.turn(0.0)
        clock.now += 60
        assert not pauses or service.problem() is not None  # also while it leads again
        pauses += [pause_s] if pause_s else []
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    monkeypatch.setattr(Folding, "fold", fold)
    for _ in range(3):
        service.aggregator.turn(0.0)
    assert (service.published.newest.version, service.problem()) == (1, None)


def test_it_looks_less_often_for_what_other_servers_accepted_while_they_accept_nothing(
    still, monkeypatch
):
    store, service, clock = still
    monkeypatch.setattr(store, "shared", True)
    looks = []

    def looked(seconds):
        looks.clear()
        for _ in range(round(seconds * 100)):
            clock.now += 0.01
            service.aggregator.turn(0.0)
        return len(looks)

    search, others = service.pending.search, [0]

    def searched():
        looks.append(1)
        service.pending.found += others[0]
        search()

    monkeypatch.setattr(service.pending, "search", searched)
    assert looked(10.0) in range(20, 27)
    others[0] = 1  # each look finds an update of another server
    assert looked(10.0) > 100
