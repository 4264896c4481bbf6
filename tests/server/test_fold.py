from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic import AdamStep, AfaCd, AfaCs, Clip, Guard, SharedVectors, Snapshot, wire
from anarchic.core.buffers import average_buffers
from anarchic.core.saving import pack
from anarchic.errors import StoreCorrupt
from anarchic.server.fold import changed_rows, decode_state, encode_state, mark_stored
from tests.core.rules.decaying import Decaying
from tests.server.make import LAYOUT, first_params, update

RULES = [
    AfaCd(3),
    AfaCd(3, step=AdamStep()),
    AfaCs(3),
    AfaCs(1, cap=3, expire_after=3),
    Clip(AfaCs(3), 0.5),
    SharedVectors(AfaCs(3), ("control",), 4),
    Guard(AfaCd(3), 1.0),
    Guard(SharedVectors(AfaCs(3), ("control",), 4)),
    Decaying(3),  # which has rows of two kinds
    SharedVectors(Decaying(1), ("control",), 4),
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
    stored, _ = changed_rows(rule, state)
    snapshot = Snapshot(state.version, state.params, state.extras)
    again = decode_state(rule, snapshot, encode_state(rule, state), stored)
    assert content(again) == content(state)
    for index in range(6, 9):  # and goes on alike
        new = update(f"w{index % 4}", seed=index)
        state, again = rule.receive(state, new), rule.receive(again, new)
    assert again.params.tobytes() == state.params.tobytes()


def test_what_the_model_holds_is_not_written_again():
    rule = AfaCd(3)
    big = rule.init(np.ones(100_000, np.float32))
    assert len(encode_state(rule, big)) < 1_000


@pytest.mark.parametrize("inside", RULES[:8], ids=str)
def test_a_state_with_buffers_comes_back_and_holds_the_model_once(inside):
    layout = replace(LAYOUT, buffers=("bias",))
    rule = average_buffers(inside, layout)
    state = stepped(rule)
    written, (stored, _) = encode_state(rule, state, layout), changed_rows(rule, state)
    assert not any(name.endswith("params") for name in wire.decode_state(written)[0])
    snapshot = Snapshot(state.version, state.params, state.extras, layout)
    again = decode_state(rule, snapshot, written, stored)
    assert content(again) == content(state)
    for index in range(6, 9):
        new = update(f"w{index % 4}", seed=index)
        state, again = rule.receive(state, new), rule.receive(again, new)
    assert again.params.tobytes() == state.params.tobytes()


def test_the_state_of_a_guard_does_not_grow_with_the_number_of_workers():
    rule = Guard(AfaCd(3))
    state, sizes = rule.init(first_params()), []
    for index in range(300):
        state = rule.receive(state, update(f"phone-{index:06}", seed=index))
        sizes.append(len(encode_state(rule, state)))
    assert max(sizes) < 3_000
    assert max(sizes[64:]) - min(sizes[64:]) < 100


def test_the_store_is_given_the_rows_that_changed():
    rule = Decaying(3)
    state = stepped(rule, 3)
    mark_stored(rule, state)
    state = rule.receive(state, update("w1", seed=9))
    assert rule.forget(state, "w2")
    changed, removed = changed_rows(rule, state)
    assert sorted(changed) == ["means:w1", "visits:w1"]
    assert sorted(removed) == ["means:w2", "visits:w2"]


@pytest.mark.parametrize("fault", ["state", "row", "size", "version"])
def test_what_cannot_be_right_is_not_used(fault):
    rule = AfaCs(3)
    state = stepped(rule)
    rows, _ = changed_rows(rule, state)
    written = encode_state(rule, state)
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
        decode_state(rule, Snapshot(version, state.params), written, rows)
