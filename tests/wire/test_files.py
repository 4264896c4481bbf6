import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file

from anarchic import Layout, wire
from anarchic.errors import ConfigError, RunError
from tests.wire.make import header, order_in, permuted


def test_the_data_of_a_saved_model_is_the_vector_byte_for_byte(tmp_path):
    layout = Layout.of({"w": ((2, 3), "F32"), "b": ((2,), "F32"), "scale": ((), "F32")})
    params = np.linspace(0, 1, layout.dim, dtype=np.float32)
    wire.save_model(tmp_path / "model", layout, params, version="7")
    assert header(tmp_path / "model")[1] == params.tobytes()
    assert order_in(tmp_path / "model") == layout.names
    again, vector, metadata = wire.load_model(tmp_path / "model")
    assert (again, vector.tobytes(), metadata) == (layout, params.tobytes(), {"version": "7"})


def test_a_path_may_be_text(tmp_path):
    layout, params = Layout.of({"x": ((2,), "F32")}), np.array([1, 2], np.float32)
    wire.save_model(f"{tmp_path}/model.safetensors", layout, params)
    assert wire.load_model(f"{tmp_path}/model.safetensors")[1].tolist() == [1, 2]
    assert [*wire.load_tensors(f"{tmp_path}/model.safetensors")[0]] == ["x"]


def test_the_same_model_is_saved_as_the_same_bytes(tmp_path):
    """However many entries its metadata has."""
    layout = Layout.of({"w": ((2,), "F32"), 'é"\n': ((1,), "F32")}, buffers=["w"])
    params, about = np.arange(3, dtype=np.float32), {name: f'{name}"\\é\t' for name in "zyxwv"}
    for number in range(8):
        wire.save_model(tmp_path / str(number), layout, params, **about)
    assert len({(tmp_path / str(number)).read_bytes() for number in range(8)}) == 1
    found, vector, metadata = wire.load_model(tmp_path / "0")
    assert (found, vector.tolist()) == (layout, [0.0, 1.0, 2.0])
    assert {name: metadata[name] for name in about} == about
    assert list(metadata) == sorted(metadata)


def test_a_saved_model_opens_with_plain_safetensors(tmp_path):
    layout = Layout.of({"w": ((1, 2), "F32"), "scale": ((), "F32")})
    wire.save_model(tmp_path / "model", layout, np.array([1, 2, 3], np.float32))
    tensors = load_file(tmp_path / "model")
    assert tensors["scale"].shape == ()
    assert (tensors["scale"].item(), tensors["w"].tolist()) == (1.0, [[2.0, 3.0]])


def test_a_vector_with_gaps_is_saved_as_its_numbers(tmp_path):
    layout = Layout.of({"w": ((3,), "F32")})
    wire.save_model(tmp_path / "model", layout, np.arange(6, dtype=np.float32)[::2])
    assert load_file(tmp_path / "model")["w"].tolist() == [0.0, 2.0, 4.0]


def test_a_layout_has_the_order_in_which_safetensors_writes(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    dtypes = [torch.float16, torch.float32, torch.bfloat16, torch.float64]
    names = ["B", "a", "a.b", "a0", "b", "z", "é"]
    tensors = {
        f"{name}-{i}": torch.full((i,), i + j / 8, dtype=dtype)
        for i, dtype in enumerate(dtypes, start=1)
        for j, name in enumerate(names)
    }
    save_torch(tensors, tmp_path / "model")
    layout, vector, metadata = wire.load_model(tmp_path / "model")
    assert layout.names == order_in(tmp_path / "model")
    assert metadata == {}
    for name, tensor in layout.split(vector).items():
        assert tensor.tolist() == tensors[name].tolist()


def test_bfloat16_is_read_exactly(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    numbers = torch.tensor([0.0, -1.5, 3.140625, 1e30, -1e-30, float("inf")]).bfloat16()
    save_torch({"w": numbers}, tmp_path / "model")
    layout, vector, _ = wire.load_model(tmp_path / "model")
    assert (layout.dtypes, vector.dtype) == (("BF16",), np.float32)
    assert vector.tolist() == numbers.float().tolist()


def test_a_model_of_mixed_dtypes_keeps_its_numbers_when_it_is_saved(tmp_path):
    """It is saved in the dtype of the vector, so its tensors may change places."""
    save_file({"a": np.ones(2, np.float16), "b": np.zeros(3, np.float32)}, tmp_path / "mixed")
    layout, vector, _ = wire.load_model(tmp_path / "mixed")
    assert layout.names == ("b", "a")
    wire.save_model(tmp_path / "model", layout, vector)
    again, other, _ = wire.load_model(tmp_path / "model")
    for name, tensor in layout.split(vector).items():
        assert again.split(other)[name].tolist() == tensor.tolist()


def test_a_file_in_another_order_gives_the_same_vector(tmp_path):
    tensors = {"w": np.ones((2, 2)), "b": np.zeros(1), "a": np.full((), 3.0)}
    permuted(tmp_path / "theirs", tensors)
    assert order_in(tmp_path / "theirs") == ("w", "b", "a")
    layout, vector, _ = wire.load_model(tmp_path / "theirs")
    assert layout.names == ("a", "b", "w")
    assert vector.tolist() == [3.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_tied_weights_are_two_tensors_once_both_are_named(tmp_path):
    """A file knows no ties: each name has its own place and its own numbers."""
    tied = np.arange(4, dtype=np.float32).reshape(2, 2)
    save_file({"embed": tied, "head": tied}, tmp_path / "model")
    layout, vector, _ = wire.load_model(tmp_path / "model")
    assert (layout.names, layout.dim) == (("embed", "head"), 8)
    tensors = layout.split(vector)
    tensors["embed"][:] = -1
    assert tensors["head"].tolist() == tied.tolist()


def test_empty_tensors_are_read(tmp_path):
    save_file({"none": np.zeros((0, 2), np.float32), "w": np.ones(1, np.float32)}, tmp_path / "m")
    layout, vector, _ = wire.load_model(tmp_path / "m")
    assert (layout.shapes, vector.tolist()) == (((0, 2), (1,)), [1.0])


def test_a_loaded_vector_can_be_written_to(tmp_path):
    save_file({"w": np.ones(1, np.float32)}, tmp_path / "model")
    wire.load_model(tmp_path / "model")[1][0] = 2.0


def test_a_model_with_integers_is_refused(tmp_path):
    save_file({"w": np.ones(1, np.float32), "steps": np.array(3)}, tmp_path / "model")
    with pytest.raises(ConfigError, match=r"not floats \(steps: I64\).*anarchic init --from"):
        wire.load_model(tmp_path / "model")


def test_arrays_and_numbers_come_back(tmp_path):
    arrays = {
        "matrix": np.arange(6.0).reshape(2, 3).T,
        "scalar": np.array(2, np.int64),
        "none": np.zeros((0, 3), np.float32),
        "gaps": np.arange(6)[::2],
    }
    wire.write(tmp_path / "record", arrays, {"half": 0.1, "names": ["é", "b"]})
    found, numbers = wire.read(tmp_path / "record")
    assert numbers == {"half": 0.1, "names": ["é", "b"]}
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


READERS = {"model": wire.load_model, "record": wire.read}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", ["missing", "empty", "cut short", "text", "folder"])
def test_a_damaged_file_is_named(tmp_path, reader, what):
    path = tmp_path / "file"
    wire.write(path, {"params": np.zeros(1)}, {"version": 0})
    whole = path.read_bytes()
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what != "missing":
        path.write_bytes({"empty": b"", "cut short": whole[:-3], "text": b"x" * 99}[what])
    with pytest.raises(RunError, match="file cannot be read as a safetensors file"):
        READERS[reader](path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    save_file({"w": np.ones(1, np.float32)}, tmp_path / "model")
    with pytest.raises(RunError, match="not one that anarchic wrote"):
        wire.read(tmp_path / "model")


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    wire.write(tmp_path / "record", {}, {"seed": 1})

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        wire.write(tmp_path / "record", {}, {"seed": 2})
    assert wire.read(tmp_path / "record")[1] == {"seed": 1}


def test_a_state_in_memory_is_the_file(tmp_path):
    arrays = {"rows": np.arange(6.0).reshape(2, 3).T, "count": np.array(2)}
    wire.write(tmp_path / "record", arrays, {"half": 0.1})
    data = wire.encode_state(arrays, {"half": 0.1})
    assert data == (tmp_path / "record").read_bytes()
    found, numbers = wire.decode_state(data)
    assert numbers == {"half": 0.1}
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].tolist()) == (array.dtype, array.tolist())


@pytest.mark.parametrize("data", [b"", b"x" * 99, wire.encode_state({}, {})[:-1]])
def test_a_damaged_state_in_memory_is_refused(data):
    with pytest.raises(RunError, match="cannot be read"):
        wire.decode_state(data)


def test_a_state_in_memory_must_be_ours():
    with pytest.raises(RunError, match="not one that anarchic wrote"):
        wire.decode_state(save({"w": np.ones(1, np.float32)}))
