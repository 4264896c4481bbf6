import pickle

import numpy as np
import pytest

from anarchic.core import rows
from anarchic.core.rows import WorkerRows
from anarchic.errors import RunError


def row(number):
    return np.full(3, number, np.float32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Two rows per block, so that a handful of workers needs several."""
    monkeypatch.setattr(rows, "BLOCK_BYTES", 24)


def dump_rows(memory):
    return {name: (array.dtype, array.tobytes()) for name, array in memory.pack()[0].items()}


def filled(*workers):
    memory = WorkerRows(np.zeros(3, np.float32))
    for version, worker in enumerate(workers):
        memory.put(worker, row(version), version)
    return memory


def test_a_row_is_replaced_and_its_worker_becomes_the_last_heard():
    memory = filled("ann", "bob", "cleo", "ann")
    assert len(memory) == 3
    assert memory["ann"].tolist() == [3.0, 3.0, 3.0]
    assert memory.longest_silent() == ("bob", 1)
    assert "dan" not in memory


def test_a_row_is_a_copy():
    memory, given = filled(), row(1)
    memory.put("ann", given, 0)
    given[:] = 9
    assert memory["ann"].tolist() == [1.0, 1.0, 1.0]


def test_a_tensor_is_not_copied_onto_itself():
    torch = pytest.importorskip("torch")
    memory = WorkerRows(torch.zeros(3))
    memory.put("ann", torch.ones(3), 0)
    row = memory["ann"]
    writes = row._version
    memory.put("ann", row, 1)
    assert row._version == writes
    memory.put("ann", torch.full((3,), 2.0), 1)
    assert memory["ann"].tolist() == [2.0, 2.0, 2.0]


def test_the_place_of_a_removed_row_is_used_again():
    memory = filled("ann", "bob", "cleo", "dan")
    place = memory["bob"].ctypes.data
    for number in range(20):
        memory.remove("bob")
        memory.put("bob", row(number), number)
        assert memory["bob"].ctypes.data == place
    assert [memory[worker][0] for worker in ("ann", "bob", "cleo", "dan")] == [0, 19, 2, 3]


@pytest.mark.parametrize(
    "copied",
    [
        lambda memory: WorkerRows(np.zeros(3, np.float32)).unpack(*memory.pack()),
        lambda memory: pickle.loads(pickle.dumps(memory)),
    ],
    ids=["packed", "pickled"],
)
def test_rows_come_back_in_the_order_in_which_they_were_heard(copied):
    memory = filled("ann", "bob", "cleo", "ann")
    again = copied(memory)
    assert again.pack()[1] == {"workers": ["bob", "cleo", "ann"]}
    assert again.longest_silent() == ("bob", 1)
    assert dump_rows(again) == dump_rows(memory)
    np.testing.assert_array_equal(again.pack()[0]["heard"], [1, 2, 3])


def test_rows_larger_than_a_block_get_one_each():
    memory = WorkerRows(np.zeros(100, np.float32))
    memory.put("ann", np.ones(100, np.float32), 0)
    memory.put("bob", np.zeros(100, np.float32), 0)
    assert memory["ann"].sum() == 100


def test_an_empty_model_has_rows_too():
    memory = WorkerRows(np.zeros(0, np.float32))
    memory.put("ann", np.zeros(0, np.float32), 0)
    assert memory["ann"].shape == (0,)


# Row by row, as in a store


def test_rows_name_what_the_store_has_not_seen():
    memory = filled("ann", "bob")
    assert sorted(memory.changes()[0]) == ["ann", "bob"]
    memory.mark_stored()
    assert memory.changes() == ({}, [])
    memory.put("bob", row(2), 1)
    memory.remove("ann")
    changed, removed = memory.changes()
    assert (list(changed), removed) == (["bob"], ["ann"])
    assert np.frombuffer(changed["bob"][16:], np.float32).tolist() == [2.0, 2.0, 2.0]
    memory.put("ann", row(7), 1)  # back before the store was told
    changed, removed = memory.changes()
    assert (sorted(changed), removed) == (["ann", "bob"], [])


def test_what_no_store_has_seen_need_not_be_removed_there():
    memory = filled("ann", "bob")
    memory.remove("ann")
    assert memory.changes()[1] == []


def test_stored_rows_come_back_in_the_order_in_which_their_workers_were_heard():
    memory, stored = WorkerRows(np.zeros(1, np.float32)), {}

    def publish(*workers, version):
        for worker in workers:
            memory.put(worker, np.array([version], np.float32), version)
        changed, removed = memory.changes()
        stored.update(changed)
        for worker in removed:
            del stored[worker]
        memory.mark_stored()

    publish("ann", "bob", "cleo", "dan", version=0)
    memory.remove("cleo")
    publish("ann", version=1)
    publish("eve", "dan", version=1)
    again = WorkerRows(np.zeros(1, np.float32))
    again.restore(stored, memory.place)
    assert (again.place, dump_rows(again)) == (memory.place, dump_rows(memory))
    assert again.changes() == ({}, [])
    again.put("bob", np.array([2], np.float32), 2)
    assert list(again.changes()[0]) == ["bob"]
    found = []
    while len(again):
        worker, version = again.longest_silent()
        found.append((worker, version, again[worker].tolist()))
        again.remove(worker)
    assert found == [("ann", 1, [1]), ("eve", 1, [1]), ("dan", 1, [1]), ("bob", 2, [2])]


def test_stored_rows_of_another_size_are_refused():
    with pytest.raises(RunError, match="28 bytes"):
        filled().restore({"ann": b"too short"}, 1)
