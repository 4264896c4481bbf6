from __future__ import annotations

import numpy as np
import pytest

from anarchic import AdamStep, AfaCd, AfaCs, Clip, SharedVectors, Snapshot
from anarchic.core.saving import pack
from anarchic.errors import StoreCorrupt
from anarchic.server.memory import TrackedRows
from anarchic.server.remember import recall, remember, tracked_rows
from tests.server.make import DIM, first_params, update

RULES = [
    AfaCd(3),
    AfaCd(3, step=AdamStep()),
    AfaCs(3, rows=TrackedRows),
    AfaCs(1, cap=3, expire_after=3, rows=TrackedRows),
    Clip(AfaCs(3, rows=TrackedRows), 0.5),
    SharedVectors(AfaCs(3, rows=TrackedRows), ("control",), 4),
]


def content(state):
    arrays, numbers = pack(state)
    return {name: array.tobytes() for name, array in arrays.items()}, numbers


def stepped(rule, count=6):
    state = rule.init(first_params())
    for index in range(count):
        state = rule.receive(state, update(f"w{index % 4}", seed=index))
    return state


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_state_comes_back_byte_for_byte(rule):
    state = stepped(rule)
    rows = tracked_rows(state)
    stored = rows.changes()[0] if rows is not None else {}
    snapshot = Snapshot(state.version, state.params, state.extras)
    again = recall(rule, snapshot, remember(state), stored)
    assert content(again) == content(state)
    for index in range(6, 9):  # and goes on alike
        new = update(f"w{index % 4}", seed=index)
        state, again = rule.receive(state, new), rule.receive(again, new)
    assert again.params.tobytes() == state.params.tobytes()


def test_what_the_model_holds_is_not_written_again():
    big = AfaCd(3).init(np.ones(100_000, np.float32))
    assert len(remember(big)) < 1_000


def test_rows_name_what_the_store_has_not_seen():
    rows = TrackedRows(np.zeros(DIM, np.float32))
    rows.put("ann", np.ones(DIM, np.float32), 0)
    rows.put("bob", np.ones(DIM, np.float32), 0)
    assert sorted(rows.changes()[0]) == ["ann", "bob"]
    rows.seen()
    assert rows.changes() == ({}, [])
    rows.put("bob", 2 * np.ones(DIM, np.float32), 1)
    rows.remove("ann")
    changed, removed = rows.changes()
    assert (list(changed), removed) == (["bob"], ["ann"])
    assert np.frombuffer(changed["bob"][16:], np.float32).tolist() == [2.0] * DIM


def test_rows_come_back_in_the_order_in_which_their_workers_were_heard():
    rows, stored = TrackedRows(np.zeros(1, np.float32)), {}

    def publish(*workers, version):
        for worker in workers:
            rows.put(worker, np.array([version], np.float32), version)
        changed, removed = rows.changes()
        stored.update(changed)
        for worker in removed:
            del stored[worker]
        rows.seen()

    publish("ann", "bob", "cleo", "dan", version=0)
    rows.remove("cleo")
    publish("ann", version=1)
    publish("eve", "dan", version=1)
    arrays = {worker: np.frombuffer(row, np.uint8) for worker, row in stored.items()}
    again = rows.unpack(arrays, rows.pack()[1])
    assert again.pack() == rows.pack()
    assert again.changes() == ({}, [])
    again.put("bob", np.array([2], np.float32), 2)
    found = []
    while len(again):
        worker, version = again.longest_silent()
        found.append((worker, version, again.get(worker).tolist()))
        again.remove(worker)
    assert found == [("ann", 1, [1]), ("eve", 1, [1]), ("dan", 1, [1]), ("bob", 2, [2])]


@pytest.mark.parametrize("fault", ["state", "row", "size", "version"])
def test_a_damaged_state_is_refused(fault):
    rule = AfaCs(3, rows=TrackedRows)
    state = stepped(rule)
    rows = tracked_rows(state).changes()[0]
    written = remember(state)
    version = state.version
    if fault == "state":
        written = written[:-1]
    elif fault == "row":
        rows.pop("w1")
    elif fault == "size":
        rows["w1"] += b"more"
    else:
        version += 1
    with pytest.raises(StoreCorrupt, match="restore the store"):
        recall(rule, Snapshot(version, state.params), written, rows)
