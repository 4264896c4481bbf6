import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from anarchic import Layout, Snapshot, Update, Updates
from anarchic.errors import ConfigError, MalformedUpdate

from .make import update, vector

# Layout; its order against files that safetensors wrote is in tests/test_wire.py


def test_a_layout_is_ordered_by_name_not_by_how_it_was_given():
    layout = Layout.of({"w": ((2, 3), "F32"), "b": ((2,), "F32"), "a.w": ((1,), "F32")})
    assert layout.names == ("a.w", "b", "w")
    assert layout.slices == {"a.w": slice(0, 1), "b": slice(1, 3), "w": slice(3, 9)}
    assert (layout.sizes, layout.dim) == ((1, 2, 6), 9)


def test_a_layout_says_where_its_buffers_are():
    tensors = {"w": ((2, 3), "F32"), "n.mean": ((2,), "F32"), "n.count": ((), "F32")}
    layout = Layout.of(tensors, buffers=["n.mean", "n.count"])
    assert layout.names == ("n.count", "n.mean", "w")
    assert layout.buffers == ("n.count", "n.mean")
    assert layout.buffer_places.tolist() == [0, 1, 2]
    assert layout != Layout.of(tensors)
    assert repr(layout).endswith(", buffers=('n.count', 'n.mean'))")


def test_a_layout_without_buffers_is_described_as_ever():
    """Fingerprints of recorded runs hold this text."""
    layout = Layout.of({"w": ((2,), "F32")})
    assert repr(layout) == "Layout(names=('w',), shapes=((2,),), dtypes=('F32',))"
    assert layout.buffer_places.tolist() == []


def test_buffers_are_tensors_of_the_layout():
    with pytest.raises(ConfigError, match="no tensors \\['mean'\\]"):
        Layout.of({"w": ((2,), "F32")}, buffers=["mean"])


def test_split_and_join_are_inverse():
    layout = Layout.of({"w": ((2, 2), "F32"), "b": ((1,), "F32")})
    tensors = layout.split(np.arange(5, dtype=np.float32))
    assert tensors["b"].tolist() == [0.0]
    assert tensors["w"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    shuffled = {name: tensors[name] for name in ("w", "b")}
    assert layout.join(shuffled).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_split_gives_views_and_keeps_leading_axes():
    layout = Layout.of({"w": ((2, 2), "F32"), "scale": ((), "F32")})
    matrix = np.zeros((3, 5), np.float32)
    tensors = layout.split(matrix)
    assert {name: t.shape for name, t in tensors.items()} == {"scale": (3,), "w": (3, 2, 2)}
    tensors["w"][:] = 1
    assert matrix.sum() == 12


def test_a_0_d_tensor_is_one_number():
    layout = Layout.of({"scale": ((), "F32")})
    tensors = layout.split(vector(3.0, dtype="f4"))
    assert (tensors["scale"].shape, tensors["scale"].item()) == ((), 3.0)
    assert layout.join(tensors).tolist() == [3.0]


def test_an_empty_tensor_and_an_empty_model_take_no_room():
    layout = Layout.of({"none": ((0, 4), "F32"), "one": ((1,), "F32")})
    assert layout.dim == 1
    assert layout.split(vector(2.0))["none"].shape == (0, 4)
    assert Layout.of({}).join({}).shape == (0,)


def test_joined_vectors_are_float32_unless_something_is_wider():
    layout = Layout.of({"a": ((1,), "F16"), "b": ((1,), "F32")})
    half, single = vector(1.0, dtype="f2"), vector(2.0, dtype="f4")
    assert layout.join({"a": half, "b": single}).dtype == np.float32
    assert layout.join({"a": half, "b": vector(2.0)}).dtype == np.float64


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"w": np.zeros(2)}, r"missing \['b'\], unknown \[\]"),
        ({"w": np.zeros(2), "b": np.zeros(1), "x": np.zeros(1)}, r"unknown \['x'\]"),
        ({"w": np.zeros((2, 1)), "b": np.zeros(1)}, r"'w' has shape \(2, 1\)"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tensors, message):
    layout = Layout.of({"w": ((2,), "F32"), "b": ((1,), "F32")})
    with pytest.raises(ConfigError, match=message):
        layout.join(tensors)


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(ConfigError, match="holds 2 numbers, the vector 3"):
        Layout.of({"w": ((2,), "F32")}).split(np.zeros(3))


@pytest.mark.parametrize("dtype", ["I64", "BOOL", "F8_E4M3"])
def test_what_cannot_be_trained_is_refused(dtype):
    with pytest.raises(ConfigError, match=f"'steps' has dtype {dtype}"):
        Layout.of({"steps": ((), dtype)})


def test_layouts_of_the_same_tensors_are_equal_and_hashable():
    one = Layout.of({"w": ([2], "F32"), "b": ((1,), "F32")})
    other = Layout.of({"b": ((1,), "F32"), "w": ((2,), "F32")})
    assert one == other
    assert len({one, other, pickle.loads(pickle.dumps(one))}) == 1


# Update, Updates, Snapshot


def some():
    return [
        update([1.0, 2.0], "ann", 3, 4, 0.5, samples=6, extras={"c": vector(7.0, 8.0)}),
        update([3.0, 4.0], "bob", 5, 6, 0.25, samples=7, extras={"c": vector(9.0, 0.0)}),
    ]


def test_a_block_gives_back_its_updates():
    block = Updates.of(some())
    assert len(block) == 2
    for row, expected in enumerate(some()):
        found = block.row(row)
        assert found.direction.tolist() == expected.direction.tolist()
        assert found.extras["c"].tolist() == expected.extras["c"].tolist()
        for name in ("worker", "base_version", "local_steps", "local_lr", "samples", "id"):
            assert getattr(found, name) == getattr(expected, name)


def test_a_slice_of_a_block_is_a_block():
    part = Updates.of(some())[1:]
    assert (len(part), part.row(0).worker, part.extras["c"].tolist()) == (1, "bob", [[9.0, 0.0]])


def test_updates_of_a_block_carry_the_same_extras():
    with pytest.raises(MalformedUpdate, match="same extras"):
        Updates.of([some()[0], update([1.0, 2.0])])
    with pytest.raises(MalformedUpdate):
        Updates.of([])


def test_the_columns_of_a_block_are_of_one_length():
    with pytest.raises(MalformedUpdate, match="2 directions"):
        replace(Updates.of(some()), workers=["ann"])
    with pytest.raises(MalformedUpdate, match="2 directions"):
        replace(Updates.of(some()), extras={"c": np.zeros((3, 2))})


def test_records_without_extras_copy_and_pickle():
    for record in (update([1.0]), Updates.of([update([1.0])]), Snapshot(0, vector(1.0))):
        for again in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
            assert dict(again.extras) == {}


def test_nobody_can_fill_the_empty_extras():
    extras = Update("ann", 0, 1, 1.0, vector(1.0)).extras
    with pytest.raises(TypeError):
        extras["c"] = vector(1.0)
    with pytest.raises(KeyError):
        extras["c"]
    assert extras == {}
    assert repr(extras) == "{}"


@pytest.mark.parametrize(
    "record",
    [update([1.0, 2.0]), Updates.of([update([1.0, 2.0])]), Snapshot(0, vector(1.0, 2.0))],
    ids=lambda record: type(record).__name__,
)
def test_records_with_arrays_are_equal_to_themselves_only(record):
    assert record == record
    assert record != replace(record)
    assert len({record, replace(record)}) == 2
