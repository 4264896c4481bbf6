import json
import os
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, load_file, save, save_file

from anarchic import Layout, Snapshot, Update, wire
from anarchic.errors import ConfigError, MalformedUpdate, NotFinite, RunError


def header(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def order_in(path):
    entries = {name: e for name, e in header(path)[0].items() if name != "__metadata__"}
    return tuple(sorted(entries, key=lambda name: entries[name]["data_offsets"]))


def permuted(path, tensors):
    """A file with float32 tensors in the order given, as safetensors itself never writes them."""
    entries, body = {}, b""
    for name, tensor in tensors.items():
        data = tensor.astype("<f4").tobytes()
        offsets = [len(body), len(body) + len(data)]
        entries[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


# Models


def test_the_data_of_a_saved_model_is_the_vector_byte_for_byte(tmp_path):
    layout = Layout.of({"w": ((2, 3), "F32"), "b": ((2,), "F32"), "scale": ((), "F32")})
    params = np.linspace(0, 1, layout.dim, dtype=np.float32)
    wire.save_model(tmp_path / "model", layout, params, version="7")
    assert header(tmp_path / "model")[1] == params.tobytes()
    assert order_in(tmp_path / "model") == layout.names
    again, vector, metadata = wire.load_model(tmp_path / "model")
    assert (again, vector.tobytes(), metadata) == (layout, params.tobytes(), {"version": "7"})


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
    with pytest.raises(ConfigError, match="'steps' has dtype I64"):
        wire.load_model(tmp_path / "model")


# States and other records


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


# Snapshots

LAYOUT = Layout.of({"w": ((2, 3), "F32"), "b": ((2,), "F32"), "scale": ((), "F32")})


def ramp(factor=1.0):
    return np.linspace(-1, 1, LAYOUT.dim, dtype=np.float32) * np.float32(factor)


def test_a_snapshot_comes_back():
    data = wire.encode_snapshot(LAYOUT, Snapshot(7, ramp(), {"control": ramp(2)}), "run-1")
    layout, snapshot, run = wire.decode_snapshot(data)
    assert (layout, snapshot.version, run) == (LAYOUT, 7, "run-1")
    assert snapshot.params.tobytes() == ramp().tobytes()
    assert snapshot.extras["control"].tobytes() == ramp(2).tobytes()
    snapshot.params[0] = snapshot.extras["control"][0] = 0  # they are the worker's own


def test_a_snapshot_tells_the_loss_it_was_given():
    sent = Snapshot(7, ramp())
    for loss, told in ((0.1, 0.1), (1e-300, 1e-300), (None, None), (float("inf"), None)):
        data = wire.encode_snapshot(LAYOUT, sent, "run-1", loss=loss)
        assert wire.snapshot_facts(data) == (told, frozenset())
        assert wire.decode_snapshot(data)[1].params.tobytes() == ramp().tobytes()


def test_a_snapshot_is_a_plain_safetensors_file_that_begins_with_the_vector():
    data = wire.encode_snapshot(LAYOUT, Snapshot(7, ramp(), {"control": ramp(2)}), "run-1")
    start = 8 + int.from_bytes(data[:8], "little")
    assert start % 8 == 0
    assert data[start:] == ramp().tobytes() + ramp(2).tobytes()
    tensors = load(data)
    assert list(tensors["extra:control"]) == list(ramp(2))
    for name, tensor in LAYOUT.split(ramp()).items():
        assert tensors[name].tolist() == tensor.tolist()


def test_a_snapshot_keeps_the_order_of_the_servers_vector():
    """A model of mixed dtypes is sent as float32; sorting it anew would move the extras."""
    mixed = Layout.of({"a": ((1,), "F16"), "b": ((1,), "F32")})
    assert mixed.names == ("b", "a")
    sent = Snapshot(0, np.array([1, 2], np.float32), {"c": np.array([3, 4], np.float32)})
    layout, snapshot, _ = wire.decode_snapshot(wire.encode_snapshot(mixed, sent, "r"))
    assert layout.names == ("b", "a")
    assert (snapshot.params.tolist(), snapshot.extras["c"].tolist()) == ([1, 2], [3, 4])


def test_a_snapshot_in_double_precision_stays_so():
    wide = Layout.of({"w": ((2,), "F64")})
    data = wire.encode_snapshot(wide, Snapshot(0, np.array([0.1, 0.2])), "r")
    layout, snapshot, _ = wire.decode_snapshot(data)
    assert (layout, snapshot.params.tolist()) == (wide, [0.1, 0.2])


@pytest.mark.parametrize("data", [b"", b"<html>not found</html>", save({"w": np.ones(1)})])
def test_what_is_not_a_snapshot_is_refused(data):
    with pytest.raises(RunError, match="not a snapshot"):
        wire.decode_snapshot(data)


@pytest.mark.parametrize("name", ["extra:c", "__metadata__"])
def test_a_model_may_not_use_our_names(name):
    layout = Layout.of({name: ((1,), "F32")})
    with pytest.raises(ConfigError, match="rename it"):
        wire.encode_snapshot(layout, Snapshot(0, np.ones(1, np.float32)), "r")
    with pytest.raises(ConfigError, match="rename it"):
        wire.most_body_bytes(layout)


def test_a_vector_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="control has shape"):
        wire.encode_snapshot(LAYOUT, Snapshot(0, ramp(), {"control": ramp()[:3]}), "r")
    with pytest.raises(ConfigError, match="vector has shape"):
        wire.encode_update(LAYOUT, an_update(direction=ramp()[:3]))


# Updates

FACTS = {"id": "u-1", "base_version": "3", "local_steps": "5", "local_lr": "0.05"}


def an_update(**changes):
    update = Update("ann", 3, 5, 0.05, ramp(), samples=640, id="u-1")
    return replace(update, **changes)


def by_library(facts=FACTS, dtype=np.float32, **tensors):
    tensors = tensors or LAYOUT.split(ramp())
    return save({n: np.asarray(t).astype(dtype) for n, t in tensors.items()}, metadata=facts)


def by_hand(entries, data=b""):
    """A file with a header of one's own; a dict is written as JSON."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def entries(**changes):
    """The header of a good file, for ``by_hand(..., ramp().tobytes())``."""
    found = {"__metadata__": FACTS}
    for name, where in LAYOUT.slices.items():
        shape = list(LAYOUT.split(ramp())[name].shape)
        offsets = [4 * where.start, 4 * where.stop]
        found[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
    return found | changes


def decode(body, **more):
    return wire.decode_update(body, LAYOUT, **({"worker": "ann"} | more))


def refused(body, match, **more):
    with pytest.raises(MalformedUpdate, match=match) as caught:
        decode(body, **more)
    message = str(caught.value)
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 600


def test_an_update_comes_back():
    sent = an_update(extras={"control": ramp(3)})
    found = decode(
        wire.encode_update(LAYOUT, sent, loss=0.25, worker="bob"), extras=frozenset({"control"})
    )
    assert found.loss == 0.25
    update = found.update
    for name in ("worker", "base_version", "local_steps", "local_lr", "samples", "id"):
        assert getattr(update, name) == getattr(sent, name)
    assert update.direction.tobytes() == ramp().tobytes()
    assert update.extras["control"].tobytes() == ramp(3).tobytes()


def test_a_loss_that_is_not_finite_is_left_out():
    assert decode(wire.encode_update(LAYOUT, an_update(), loss=float("nan"))).loss is None


def test_the_sender_is_that_of_the_token_or_else_of_the_metadata():
    body = wire.encode_update(LAYOUT, an_update(), worker="bob")
    assert decode(body, worker="ann").update.worker == "ann"
    assert decode(body, worker=None).update.worker == "bob"
    refused(wire.encode_update(LAYOUT, an_update()), "has no sender", worker=None)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_canonical_float32_body_becomes_the_vector_without_a_copy(kind):
    body = kind(wire.encode_update(LAYOUT, an_update(extras={"c": ramp(2)})))
    update = decode(body, extras=frozenset({"c"})).update
    for vector in (update.direction, update.extras["c"]):
        assert np.shares_memory(vector, np.frombuffer(body, np.uint8))
        assert not vector.flags.writeable
        assert vector.dtype == np.float32


def test_what_the_library_writes_is_not_copied_either():
    body = by_library()
    assert np.shares_memory(decode(body).update.direction, np.frombuffer(body, np.uint8))


@pytest.mark.parametrize("shift", [1, 2, 3, 4])
def test_a_body_that_is_not_aligned_is_copied(shift):
    body = wire.encode_update(LAYOUT, an_update())
    view = memoryview(b"x" * shift + body)[shift:]
    direction = decode(view).update.direction
    assert direction.flags.aligned
    assert direction.tobytes() == ramp().tobytes()
    assert np.shares_memory(direction, np.frombuffer(view, np.uint8)) == (shift == 4)


@pytest.mark.parametrize("order", list(permutations([*LAYOUT.names, "extra:c"])))
@pytest.mark.parametrize("dtype", ["<f4", "<f2"])
def test_any_order_gives_the_same_vector(order, dtype):
    tensors = LAYOUT.split(ramp()) | {"extra:c": ramp(2)}
    header, data = {"__metadata__": FACTS}, b""
    for name in order:
        part = tensors[name].astype(dtype).tobytes()
        offsets = [len(data), len(data) + len(part)]
        shape = list(tensors[name].shape)
        kind = {"<f4": "F32", "<f2": "F16"}[dtype]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
        data += part
    update = decode(by_hand(header, data), extras=frozenset({"c"})).update
    assert update.direction.tolist() == ramp().astype(dtype).tolist()
    assert update.extras["c"].tolist() == ramp(2).astype(dtype).tolist()


def test_narrow_numbers_are_rounded_once_and_widened_exactly():
    torch = pytest.importorskip("torch")
    numbers = np.concatenate(
        [
            np.array([0.0, -0.0, 1e-40, 3.3e38, np.inf, -np.inf, np.nan, 1.00390625]),
            np.random.default_rng(0).standard_normal(1000),
        ]
    ).astype(np.float32)
    layout = Layout.of({"w": (numbers.shape, "F32")})
    update = an_update(direction=numbers)
    body = wire.encode_update(layout, update, dtype="BF16")
    found = wire.decode_update(body, layout, worker="ann").update.direction
    expected = torch.from_numpy(numbers).bfloat16().float().numpy()
    np.testing.assert_array_equal(found, expected)
    small = an_update(direction=np.clip(numbers, -6e4, 6e4))
    body = wire.encode_update(layout, small, dtype="F16")
    found = wire.decode_update(body, layout, worker="ann").update.direction
    np.testing.assert_array_equal(found, small.direction.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(("dtype", "number"), [("F16", 7e4), ("BF16", 3.4e38), ("F32", 1e39)])
def test_a_number_too_large_for_the_dtype_is_not_sent(dtype, number):
    direction = np.full(LAYOUT.dim, number)
    with pytest.raises(NotFinite, match="too large for"):
        wire.encode_update(LAYOUT, an_update(direction=direction), dtype=dtype)


@pytest.mark.parametrize(
    "changes",
    [{"id": ""}, {"id": "a b"}, {"id": "x" * 129}, {"local_lr": np.inf}, {"base_version": -1}],
)
def test_what_would_be_refused_is_not_encoded(changes):
    with pytest.raises(MalformedUpdate):
        wire.encode_update(LAYOUT, an_update(**changes))


def test_bodies_of_pytorch_are_read():
    torch = pytest.importorskip("torch")
    from safetensors.torch import save as save_torch

    tensors = {n: torch.from_numpy(t.copy()).bfloat16() for n, t in LAYOUT.split(ramp()).items()}
    update = decode(save_torch(tensors, metadata=FACTS | {"format": "pt"})).update
    expected = {name: tensor.float().numpy() for name, tensor in tensors.items()}
    assert update.direction.tolist() == LAYOUT.join(expected).tolist()


names = st.text(min_size=1, max_size=8).filter(lambda n: not n.startswith(("extra:", "__")))
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@given(st.dictionaries(names, shapes, max_size=5), st.sampled_from(["<f4", "<f2"]), st.data())
def test_ours_agrees_with_the_library_on_every_good_file(model, dtype, data):
    layout = Layout.of({name: (shape, "F32") for name, shape in model.items()})
    seed = data.draw(st.integers(0, 2**32 - 1))
    vector = np.random.default_rng(seed).standard_normal(layout.dim).astype(dtype)
    body = save({name: t.copy() for name, t in layout.split(vector).items()}, metadata=FACTS)
    ours = wire.decode_update(body, layout, worker="ann").update
    expected = layout.join({name: t.astype(np.float32) for name, t in load(body).items()})
    assert ours.direction.tobytes() == expected.tobytes()
    assert len(body) <= wire.most_body_bytes(layout)
    kind = {"<f4": "F32", "<f2": "F16"}[dtype]
    again = wire.encode_update(layout, an_update(direction=vector), dtype=kind)
    assert {n: t.tobytes() for n, t in load(again).items()} == {
        n: t.tobytes() for n, t in load(body).items()
    }


def test_the_longest_honest_update_is_within_the_bound():
    names = {"é" * 300: ((1,), "F32"), "{[" * 50: ((), "F32")} | {
        f"layer.{i}.weight": ((1,), "F32") for i in range(500)
    }
    layout = Layout.of(names)
    update = Update("ann", 10**14, 5, 1 / 3, np.ones(layout.dim), id="[" * 128)
    body = wire.encode_update(
        layout, replace(update, extras={"c": update.direction}), loss=-1 / 3, worker="w" * 64
    )
    assert len(body) <= wire.most_body_bytes(layout, {"c"})
    assert wire.decode_update(body, layout, extras=frozenset({"c"})).update.id == "[" * 128
    escaped = json.dumps(json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])).encode()
    assert len(escaped) < wire.most_body_bytes(layout, {"c"}) - 4 * 2 * layout.dim


BAD_BODIES = {
    "empty": (b"", "0 bytes"),
    "shorter than a length": (b"1234567", "7 bytes"),
    "a giant header": (b"\xff" * 8 + b"{}", "claims 18446744073709551615 bytes"),
    "a header longer than the body": (b"\x10" + b"\0" * 7 + b"{}", "only 2 follow"),
    "no header": (b"\0" * 8, "begin with"),
    "a list": (by_hand(b"[1]"), "begin with"),
    "a space first": (by_hand(b" {}"), "begin with"),
    "a byte order mark": (by_hand("\ufeff{}".encode()), "begin with"),
    "not UTF-8": (by_hand(b'{"\xff":1}'), "not JSON in UTF-8"),
    "UTF-16": (by_hand('{"a":1}'.encode("utf-16-le")), "not JSON in UTF-8"),
    "cut JSON": (by_hand(b'{"a":'), "not JSON"),
    "two objects": (by_hand(b"{}{}"), "not JSON"),
    "a number of 10,000 digits": (by_hand(b'{"a":' + b"9" * 10_000 + b"}"), "not JSON"),
    "minus zero": (by_hand(b'{"a":-0}'), "not JSON"),
    "NaN": (by_hand(b'{"a":NaN}'), "not JSON"),
    "a float": (by_hand(b'{"a":1e3}'), "not JSON"),
    "a name twice": (by_hand(b'{"a":1,"a":1}'), "occurs twice"),
    "deep nesting": (by_hand(b'{"a":' + b"[" * 60_000 + b"]" * 5_000 + b"}"), "brackets"),
    "more brackets than the model has use for": (
        by_hand(b'{"b":[' + b"[]," * 400 + b"[]]}"),
        "too many brackets",
    ),
    "nesting that the parser survives": (
        by_hand(b'{"b":' + b"[" * 150 + b"]" * 150 + b"}"),
        "must have dtype",
    ),
    "no tensors": (by_hand({"__metadata__": FACTS}), "missing 'b', 'scale', 'w'"),
    "an unknown tensor": (
        by_library(**LAYOUT.split(ramp()), zz=np.ones(1)),
        "unknown 'zz'",
    ),
    "an extra that the rule does not know": (
        by_library(**LAYOUT.split(ramp()) | {"extra:c": ramp()}),
        "unknown 'extra:c'",
    ),
    "another shape": (by_library(**LAYOUT.split(ramp()) | {"w": np.ones((3, 2))}), "wants"),
    "double precision": (by_library(dtype=np.float64), "dtype F64"),
    "whole numbers": (by_library(dtype=np.int32), "'I32'"),
    "extra bytes after the data": (by_library() + b"x", "extra bytes at its end"),
    "a byte missing": (by_library()[:-1], "cut short"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused(name):
    refused(*BAD_BODIES[name])


def entry(shape, offsets, **more):
    return {"dtype": "F32", "shape": shape, "data_offsets": offsets} | more


BAD_ENTRIES = {
    "two dtypes": {"b": entry([2], [0, 4], dtype="F16")},
    "a dtype that is no string": {"b": entry([2], [0, 8], dtype=["F32"])},
    "null": {"b": None},
    "a list": {"b": []},
    "a part too many": {"b": entry([2], [0, 8], strides=[1])},
    "a part too few": {"b": {"dtype": "F32", "shape": [2]}},
    "true as a shape": {"scale": entry([True], [8, 12])},
    "true as an offset": {"b": entry([2], [False, 8])},
    "a string as an offset": {"b": entry([2], ["0", 8])},
    "three offsets": {"b": entry([2], [0, 8, 8])},
    "offsets backwards": {"b": entry([2], [8, 0])},
    "offsets as an object": {"b": entry([2], {"0": 0})},
    "a shape that is a number": {"b": entry(2, [0, 8])},
    "nested shapes": {"b": entry([[2]], [0, 8])},
    "too short": {"b": entry([2], [0, 4])},
    "a gap": {"w": entry([2, 3], [16, 40])},
    "an overlap": {"w": entry([2, 3], [8, 32])},
    "the same place": {"scale": entry([], [0, 4])},
    "beyond the end": {"w": entry([2, 3], [10**14, 10**14 + 24])},
    "33 axes": {"scale": entry([1] * 33, [8, 12])},
    "metadata as a list": {"__metadata__": list(FACTS.items())},
    "no metadata": {"__metadata__": None},
    "a number in the metadata": {"__metadata__": FACTS | {"local_steps": 5}},
}


@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_a_bad_entry_is_refused(name):
    assert decode(by_hand(entries(), ramp().tobytes())).update.direction.tolist() == list(ramp())
    refused(by_hand(entries(**BAD_ENTRIES[name]), ramp().tobytes()), None)


BAD_FACTS = {
    "id": ["", "a b", "é", "x\n", "\x7f", "\ud800", "x" * 129],
    "worker": ["", "a b", "x\n", "é", "a/b", "x" * 65],
    "base_version": ["", "+1", "-1", "1_0", " 1", "1 ", "01", "1.0", "1e3", "٣", "1\n", "9" * 16],
    "local_steps": ["", "five", "0x5", "9" * 5000],
    "samples": ["", "-1", "1.5"],
    "local_lr": ["", "nan", "inf", "-Infinity", "1e999", ".5", "5.", "+1", "1_0", " 1", "0x1p3"],
    "loss": ["NaN", "1e400", "1" * 65, "٣", "1,5"],
    "surprise": ["1"],
}


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, ts in BAD_FACTS.items() for t in ts])
def test_bad_metadata_are_refused(name, text):
    header = entries(__metadata__=FACTS | {name: text})
    refused(by_hand(header, ramp().tobytes()), f"'{name}'")


def test_an_error_describes_a_valid_name():
    header = entries(__metadata__=FACTS | {"id": "a b"})
    refused(by_hand(header, ramp().tobytes()), "must be 1 to 128 printable ASCII characters")


@pytest.mark.parametrize("name", FACTS)
def test_missing_metadata_are_refused(name):
    header = entries(__metadata__={key: text for key, text in FACTS.items() if key != name})
    refused(by_hand(header, ramp().tobytes()), f"missing '{name}'")


@pytest.mark.parametrize("text", ["0", "1", "999999999999999"])
def test_whole_numbers_are_taken_exactly(text):
    header = entries(__metadata__=FACTS | {"base_version": text})
    assert decode(by_hand(header, ramp().tobytes())).update.base_version == int(text)


@pytest.mark.parametrize("text", ["0.05", "1e-05", "1E3", "1", "2.5e+2", "-0.5"])
def test_numbers_are_taken_as_json_writes_them(text):
    header = entries(__metadata__=FACTS | {"loss": text})
    assert decode(by_hand(header, ramp().tobytes())).loss == float(text)


def test_the_bytes_in_the_documentation_are_an_update():
    page = (Path(__file__).parents[1] / "docs" / "protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^[0-9a-f]{8}: ((?:[0-9a-f]{2,4} )+)", page, re.M)
    body = bytes.fromhex("".join(rows))
    update = wire.decode_update(body, Layout.of({"w": ((2,), "F32")}), worker="ann").update
    assert (len(body), update.id, update.base_version) == (151, "a1", 7)
    assert (update.local_steps, update.local_lr, update.direction.tolist()) == (5, 0.5, [1, -2])
