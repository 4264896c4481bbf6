"""The short form of ``python -m tests.chaos``, and whether its judge can find anything."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from anarchic import wire
from anarchic.core.types import Snapshot
from anarchic.server.records import NewUpdate, Publication
from anarchic.server.store import open_store
from tests.chaos.faults import Plan, run
from tests.chaos.ledger import Ledger, Story, check, stories
from tests.server.make import LAYOUT, begun, body, first_params
from tests.server.stored import state_of


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        Plan(kills=3, rule="afa-cd"),
        Plan(kills=2, rule="afa-cs", herds=0, workers=4, options=("--cap", "3"), seed=1),
        Plan(
            kills=1,
            rule="afa-cd",
            m=3,
            herds=0,
            workers=4,
            options=("--clip", "0.5", "--staleness-power", "0.5"),
            seed=2,
        ),
    ],
    ids=["afa-cd", "afa-cs", "clipped and discounted"],
)
def test_nothing_accepted_is_lost_or_counted_twice(tmp_path, plan):
    report = run(plan, tmp_path, str(tmp_path / "run.db"))
    assert report.verdict.promised > 0
    assert report.verdict.versions > plan.kills


def test_a_ledger_records_what_was_acknowledged(tmp_path):
    ledger = Ledger(tmp_path / "one.ledger")
    for id in ("accepted", "again", "refused", "silent", "unsure", "late", "cut"):
        ledger.sends("ann", id, b"body", whole=id != "cut")
    ledger.hears("ann", "accepted", b"body", 202)
    ledger.hears("ann", "again", b"body", 200)
    ledger.hears("ann", "refused", b"body", 422)
    ledger.hears("ann", "unsure", b"body", 503)
    ledger.sends("ann", "late", b"body")
    ledger.hears("ann", "late", b"body", 409)  # the first time nobody answered
    told = {id: story.counts for (_, id, _), story in stories(tmp_path.glob("*.ledger")).items()}
    assert told == {
        "accepted": "once",
        "again": "once",
        "refused": "never",
        "silent": "maybe",
        "unsure": "maybe",
        "late": "maybe",
        "cut": "never",
    }


@pytest.fixture
def judged(tmp_path):
    """A store with two updates waiting, and a true account of them."""
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    begun(store, m=4)
    bodies = {id: body("ann", id) for id in ("1", "2")}
    store.append([_new("ann", id, sent) for id, sent in bodies.items()])
    told = {
        ("ann", id, hashlib.sha256(sent).hexdigest()): Story(whole=1, heard=Counter({202: 1}))
        for id, sent in bodies.items()
    }
    yield store, told
    store.close()


def _new(worker, id, sent):
    digest = hashlib.sha256(sent).digest()
    return NewUpdate(worker, id, digest, 0, 2, 0.1, 0, 1.0, 0.0, sent)


def test_the_check_passes_a_correct_ledger(judged):
    assert check(*judged, m=4).promised == 2


def test_the_check_finds_errors_in_a_ledger(judged):
    store, told = judged
    first, second = told
    with pytest.raises(AssertionError, match="accepted updates are lost"):
        check(store, told | {("ann", "3", "x"): Story(whole=1, heard=Counter({200: 1}))}, m=4)
    with pytest.raises(AssertionError, match="nobody sent"):
        check(store, {first: told[first]}, m=4)
    with pytest.raises(AssertionError, match="refused or partial"):
        check(store, told | {second: Story(whole=1, heard=Counter({422: 1}))}, m=4)
    with pytest.raises(AssertionError, match="accepted twice"):
        check(store, told | {second: Story(whole=2, heard=Counter({202: 2}))}, m=4)
    with pytest.raises(AssertionError, match="left unfolded"):
        check(store, told, m=2)


def test_the_check_replays_the_run(judged):
    store, told = judged
    wrong = wire.encode_snapshot(LAYOUT, Snapshot(1, first_params()), "run")  # as if nothing came
    epoch, (state, _) = store.lead(), state_of(store)
    store.publish(Publication(epoch, 0, 1, [(1, 1), (2, 1)], wrong, state))
    with pytest.raises(AssertionError, match="differ from those of the replay"):
        check(store, told, m=2)
