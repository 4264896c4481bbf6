import numpy as np
import pytest

from anarchic.core.rules import rows
from anarchic.core.rules.rows import MemoryRows


def row(number):
    return np.full(3, number, np.float32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Two rows a block, so that a handful of workers needs several."""
    monkeypatch.setattr(rows, "BLOCK_BYTES", 24)


def filled(*workers):
    memory = MemoryRows(np.zeros(3, np.float32))
    for version, worker in enumerate(workers):
        memory.put(worker, row(version), version)
    return memory


def test_a_row_is_replaced_and_its_worker_becomes_the_last_heard():
    memory = filled("ann", "bob", "cleo", "ann")
    assert len(memory) == 3
    assert memory.get("ann").tolist() == [3.0, 3.0, 3.0]
    assert memory.longest_silent() == ("bob", 1)
    assert memory.get("dan") is None


def test_a_row_is_a_copy():
    memory, given = filled(), row(1)
    memory.put("ann", given, 0)
    given[:] = 9
    assert memory.get("ann").tolist() == [1.0, 1.0, 1.0]


def test_the_place_of_a_removed_row_is_used_again():
    memory = filled("ann", "bob", "cleo", "dan")
    for number in range(20):
        memory.remove("bob")
        memory.put("bob", row(number), number)
    assert len(memory._blocks) == 2
    assert memory.get("bob")[0] == 19
    assert [memory.get(worker)[0] for worker in ("ann", "cleo", "dan")] == [0, 2, 3]


def test_packed_rows_come_back_in_the_order_in_which_they_were_heard():
    memory = filled("ann", "bob", "cleo", "ann")
    again = MemoryRows(np.zeros(3, np.float32)).unpack(*memory.pack())
    assert again.pack()[1] == {"workers": ["bob", "cleo", "ann"]}
    assert again.longest_silent() == ("bob", 1)
    np.testing.assert_array_equal(again.pack()[0]["rows"], memory.pack()[0]["rows"])
    np.testing.assert_array_equal(again.pack()[0]["heard"], [1, 2, 3])


def test_rows_larger_than_a_block_get_one_each():
    memory = MemoryRows(np.zeros(100, np.float32))
    memory.put("ann", np.ones(100, np.float32), 0)
    memory.put("bob", np.zeros(100, np.float32), 0)
    assert memory.get("ann").sum() == 100


def test_an_empty_model_has_rows_too():
    memory = MemoryRows(np.zeros(0, np.float32))
    memory.put("ann", np.zeros(0, np.float32), 0)
    assert memory.get("ann").shape == (0,)
