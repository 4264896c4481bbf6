"""What was accepted is given out once, in order, whoever accepted it and whenever."""

from __future__ import annotations

from contextlib import closing

import pytest

from anarchic import wire
from anarchic.errors import StoreUnavailable
from anarchic.server.limits import Shares
from anarchic.server.pending import Pending
from anarchic.server.store import Store, open_store
from tests.server.make import LAYOUT, begun, body
from tests.server.stored import new


@pytest.fixture
def store(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store)
        yield store


@pytest.fixture
def pending(store):
    return Pending(store, LAYOUT, Shares(100, 100))


def sent(*ids):
    """New updates of one worker, as the collector hands them over."""
    for id in ids:
        made = bytearray(body("ann", id))
        decoded = wire.decode_update(made, LAYOUT, extras=frozenset(), worker="ann")
        yield new("ann", id, made), decoded


def accept(pending, *ids):
    for _ in ids:
        pending.reserve("ann")
    return [receipt.outcome for receipt in pending.accept([*sent(*ids)])]


def given_out(pending):
    found = []
    while (queued := pending.next(0.0)) is not None:
        found.append((queued[0], queued[1].update.id))
    return found


def test_updates_accepted_while_the_lead_is_taken_keep_their_order(pending):
    accept(pending, "a")  # before this server leads
    pending.begin(frozenset())
    accept(pending, "b")  # before anything was given out
    assert given_out(pending) == [(1, "a"), (2, "b")]
    accept(pending, "c")
    assert given_out(pending) == [(3, "c")]


def test_an_update_is_given_out_once_until_the_server_leads_again(pending):
    pending.begin(frozenset())
    assert accept(pending, "a", "b", "a") == ["accepted", "accepted", "duplicate"]
    assert given_out(pending) == [(1, "a"), (2, "b")]
    pending.search()
    assert given_out(pending) == []  # still in no version, but given out
    pending.pause()
    pending.begin(frozenset())
    assert given_out(pending) == [(1, "a"), (2, "b")]


def test_more_updates_than_fit_into_memory_are_read_back(pending, monkeypatch):
    monkeypatch.setattr("anarchic.server.pending.MOST_QUEUED", 32)
    pending.begin(frozenset())
    pending.next(0.0)
    ids = [f"{number:03}" for number in range(100)]
    accept(pending, *ids)
    assert pending.queued == 32
    assert given_out(pending) == [(seq, id) for seq, id in enumerate(ids, start=1)]


def test_the_vectors_beside_the_model_count_in_what_fits_into_memory(pending, monkeypatch):
    each = wire.most_body_bytes(LAYOUT, {"control"})
    monkeypatch.setattr("anarchic.server.pending.QUEUED_BYTES", 3 * each)
    pending.begin(frozenset({"control"}))
    pending.next(0.0)
    accept(pending, "a", "b", "c", "d")
    assert pending.queued == 3
    assert [id for _, id in given_out(pending)] == ["a", "b", "c", "d"]


def test_shares_are_free_once_a_version_holds_the_updates(pending):
    pending.begin(frozenset())
    accept(pending, "a", "b", "b")
    assert pending.count == 2
    pending.published([(1, "ann"), (2, "ann")])
    assert pending.count == 0


def test_what_a_failed_transaction_may_have_stored_is_searched_for(pending, monkeypatch):
    def lost(self, updates, append=Store.append):
        append(self, updates)
        raise StoreUnavailable("The connection broke.")

    pending.begin(frozenset())
    assert given_out(pending) == []
    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", lost)
        with pytest.raises(StoreUnavailable):
            accept(pending, "a")
    assert given_out(pending) == [(1, "a")]
