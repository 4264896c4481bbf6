import gc
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from anarchic import AfaCs
from anarchic.core.rules import mapped_rows, rows
from anarchic.core.rules.afa_cs import ROWS
from anarchic.core.rules.coded_rows import GROUP, ByteRows, HalfRows
from anarchic.core.rules.mapped_rows import MappedRows
from anarchic.core.rules.rows import MemoryRows
from anarchic.errors import ConfigError, RunError

from ..make import dump, update

every_kind = pytest.mark.parametrize("kind", ROWS.values(), ids=ROWS)


def row(number):
    return np.full(3, number, np.float32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Two rows a block, so that a handful of workers needs several."""
    monkeypatch.setattr(rows, "BLOCK_BYTES", 24)


def dump_rows(memory):
    return {name: (array.dtype, array.tobytes()) for name, array in memory.pack()[0].items()}


def filled(*workers, kind=MemoryRows):
    memory = kind(np.zeros(3, np.float32))
    for version, worker in enumerate(workers):
        memory.put(worker, row(version), version)
    return memory


@every_kind
def test_a_row_is_replaced_and_its_worker_becomes_the_last_heard(kind):
    memory = filled("ann", "bob", "cleo", "ann", kind=kind)
    assert len(memory) == 3
    assert memory.get("ann")[:].tolist() == [3.0, 3.0, 3.0]
    assert memory.longest_silent() == ("bob", 1)
    assert memory.get("dan") is None


@every_kind
def test_a_row_is_a_copy(kind):
    memory, given = filled(kind=kind), row(1)
    memory.put("ann", given, 0)
    given[:] = 9
    assert memory.get("ann")[:].tolist() == [1.0, 1.0, 1.0]


def test_a_tensor_is_not_copied_onto_itself():
    torch = pytest.importorskip("torch")
    memory = MemoryRows(torch.zeros(3))
    memory.put("ann", torch.ones(3), 0)
    row = memory.get("ann")
    writes = row._version
    memory.put("ann", row, 1)
    assert row._version == writes
    memory.put("ann", torch.full((3,), 2.0), 1)
    assert memory.get("ann").tolist() == [2.0, 2.0, 2.0]


@every_kind
def test_the_place_of_a_removed_row_is_used_again(kind):
    memory = filled("ann", "bob", "cleo", "dan", kind=kind)
    for number in range(20):
        memory.remove("bob")
        memory.put("bob", row(number), number)
    assert memory._slots == 4 or kind in (HalfRows, ByteRows)
    assert memory.get("bob")[:][0] == 19
    assert [memory.get(worker)[:][0] for worker in ("ann", "cleo", "dan")] == [0, 2, 3]


@every_kind
def test_packed_rows_come_back_in_the_order_in_which_they_were_heard(kind):
    memory = filled("ann", "bob", "cleo", "ann", kind=kind)
    again = kind(np.zeros(3, np.float32)).unpack(*memory.pack())
    assert again.pack()[1] == {"workers": ["bob", "cleo", "ann"]}
    assert again.longest_silent() == ("bob", 1)
    assert dump_rows(again) == dump_rows(memory)
    np.testing.assert_array_equal(again.pack()[0]["heard"], [1, 2, 3])


@every_kind
def test_rows_larger_than_a_block_get_one_each(kind):
    memory = kind(np.zeros(100, np.float32))
    memory.put("ann", np.ones(100, np.float32), 0)
    memory.put("bob", np.zeros(100, np.float32), 0)
    assert memory.get("ann")[:].sum() == 100


@every_kind
def test_an_empty_model_has_rows_too(kind):
    memory = kind(np.zeros(0, np.float32))
    memory.put("ann", np.zeros(0, np.float32), 0)
    assert memory.get("ann")[:].shape == (0,)


# Rows in files


def test_mapped_rows_live_in_their_directory_and_go_with_it(tmp_path):
    memory = MappedRows(np.zeros(3, np.float32), tmp_path / "rows")
    for number in range(5):
        memory.put(str(number), row(number), 0)
    files = [path for path in (tmp_path / "rows").rglob("*") if path.is_file()]
    assert sorted(path.stat().st_size for path in files) == [24, 24, 24]  # two rows each
    del memory
    gc.collect()
    assert list((tmp_path / "rows").iterdir()) == []


def test_mapped_rows_hold_few_files_open(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_rows, "MOST_OPEN", 2)
    memory = MappedRows(np.zeros(3, np.float32), tmp_path)
    for number in range(20):
        memory.put(str(number), row(number), 0)
    assert [memory.get(str(number))[0] for number in range(20)] == list(range(20))
    kept = memory.get("0")  # outlives its block
    kept[:] = 7
    for number in range(1, 20):
        memory.get(str(number))
    assert len(memory._mapped) == 2
    assert memory.get("0")[0] == 7
    open_files = Path("/proc/self/maps")
    if open_files.exists():
        assert open_files.read_text().count(str(tmp_path)) <= 3


def test_a_full_disk_is_said_before_anything_is_lost(tmp_path, monkeypatch):
    def full(path, size):
        raise OSError(28, "No space left on device")

    memory = MappedRows(np.zeros(3, np.float32), tmp_path)
    monkeypatch.setattr(mapped_rows, "_reserve", full)
    with pytest.raises(RunError, match=r"24 bytes.*No space left"):
        memory.put("ann", row(1), 0)
    assert len(memory) == 0


def test_mapped_rows_give_the_bytes_of_rows_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    updates = [update(rng.normal(size=5), str(rng.integers(4)), dtype="f4") for _ in range(30)]
    found = []
    for kind in ("memory", partial(MappedRows, directory=tmp_path)):
        rule = AfaCs(m=3, expire_after=2, rows=kind)
        state = rule.init(np.zeros(5, np.float32))
        for each in updates:
            state = rule.receive(state, each)
        found.append(dump(state))
    assert found[0] == found[1]


# Rows in fewer bytes


def test_int8_rows_by_hand():
    memory = ByteRows(np.zeros(4, np.float32))
    memory.put("ann", np.array([127.0, 50.4, -50.6, 0.0], np.float32), 0)  # a scale of 1
    assert memory.get("ann")[:].tolist() == [127.0, 50.0, -51.0, 0.0]


def test_float16_rows_by_hand():
    memory = HalfRows(np.zeros(3, np.float32))
    memory.put("ann", np.array([1.0, 1 - 2**-11, 2**-11 + 2**-23], np.float32), 0)
    assert memory.get("ann")[:].tolist() == [1.0, 1 - 2**-11, 2**-11]


def kept(kind, values):
    memory = kind(np.zeros(len(values), values.dtype))
    memory.put("ann", values, 0)
    return memory.get("ann")[:]


def largest_of_groups(values):
    padded = np.zeros(-(-len(values) // GROUP) * GROUP)
    padded[: len(values)] = np.abs(values)
    return padded.reshape(-1, GROUP).max(1).repeat(GROUP)[: len(values)]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("dim", [1, GROUP, 3 * GROUP + 1, 10_000])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 1e15])
def test_coded_rows_are_off_by_no_more_than_they_say(dim, size, dtype):
    rng = np.random.default_rng(dim)
    values = (size * rng.normal(size=dim) * 10.0 ** rng.integers(-6, 1, dim)).astype(dtype)
    exact, largest = values.astype(np.float64), largest_of_groups(values)
    slack = 1 + 2.0**-10
    byte_error = np.abs(kept(ByteRows, values) - exact)
    assert (byte_error <= slack * largest / 254).all()
    half_error = np.abs(kept(HalfRows, values) - exact)
    assert (half_error <= slack * (2.0**-11 * np.abs(exact) + 2.0**-25 * largest)).all()
    assert byte_error.max() > largest.max() / 1000 or dim == 1  # the bound is not idle


@pytest.mark.parametrize("kind", [HalfRows, ByteRows])
def test_numbers_too_small_for_a_scale_become_zero(kind):
    values = np.array([1e-45, -1e-45, 0], np.float32)
    assert np.abs(kept(kind, values)).max() <= 2e-45
    assert not kept(kind, np.zeros(300, np.float32)).any()


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_the_sum_of_coded_rows_does_not_drift(kind):
    """What is taken away is what was added, not what it was before it was coded."""
    rng = np.random.default_rng(0)
    rule = AfaCs(m=10, rows=kind)
    state = rule.init(np.zeros(300, np.float32))
    for _ in range(3000):
        direction = rng.normal(size=300) * 10.0 ** rng.integers(-3, 4)
        state = rule.receive(state, update(direction, str(rng.integers(5)), dtype="f4"))
    fresh = sum(state.rows.get(str(n))[:].astype(np.float64) for n in range(5))
    np.testing.assert_allclose(state.total, fresh, rtol=0, atol=1e-9)  # rows are below 1e4


def test_coded_rows_take_the_bytes_that_they_say():
    for kind, code in (("float16", 2), ("int8", 1)):
        memory = ROWS[kind](np.zeros(10 * GROUP, np.float32))
        memory.put("ann", np.ones(10 * GROUP, np.float32), 0)
        arrays = memory.pack()[0]
        assert arrays["codes"].nbytes + arrays["scales"].nbytes == 10 * GROUP * code + 10 * 4


@pytest.mark.parametrize("kind", ["mapped", "float16", "int8"])
def test_rows_on_the_host_refuse_tensors(kind):
    torch = pytest.importorskip("torch")
    with pytest.raises(ConfigError, match="rows='memory'"):
        AfaCs(m=1, rows=kind).init(torch.zeros(3))


def test_unknown_rows_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="memory, mapped, float16, int8"):
        AfaCs(m=1, rows="int4")
