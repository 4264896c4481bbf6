"""A server without threads: every part does its next piece of work when it is told to."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from anarchic.errors import StoreUnavailable
from anarchic.server.aggregate import FOLLOW_S, RETRY_S
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
    return service.collector.queue(*service.check.check(bytearray(body(worker)), None))


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
