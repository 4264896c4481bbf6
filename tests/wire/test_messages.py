import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from anarchic import Layout, Snapshot, Update, wire
from anarchic.errors import ConfigError, MalformedUpdate, NotFinite, RunError
from tests.wire.make import (
    FACTS,
    LAYOUT,
    an_update,
    by_hand,
    by_library,
    decode,
    ramp,
    refused,
)


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
        assert wire.snapshot_facts(data) == (told, frozenset(), None)
        assert wire.decode_snapshot(data)[1].params.tobytes() == ramp().tobytes()


def test_epochs_travel_with_snapshots_and_updates():
    data = wire.encode_snapshot(LAYOUT, Snapshot(7, ramp()), "run-1", epoch="3-9f2c1a7b")
    assert wire.snapshot_facts(data) == (None, frozenset(), "3-9f2c1a7b")
    sent = Update("ann", 7, 1, 0.1, ramp(), id="1")
    for epoch in ("3-9f2c1a7b", None):
        body = wire.encode_update(LAYOUT, sent, epoch=epoch)
        assert wire.decode_update(body, LAYOUT, worker="ann").epoch == epoch
    body = wire.encode_update(LAYOUT, sent, epoch="3-9f2c1a7b")
    with pytest.raises(MalformedUpdate, match="epoch"):
        wire.decode_update(body.replace(b"3-9f2c1a7b", b"3 9f2c1a7b"), LAYOUT, worker="ann")


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


def test_the_beginning_of_an_update_shows_whether_it_can_be_one():
    body = wire.encode_update(LAYOUT, an_update(), worker="ann")
    header = 8 + int.from_bytes(body[:8], "little")
    for cut in range(len(body)):  # as long as the header is not there, it may become one
        wire.check_beginning(body[:cut], len(body), LAYOUT)
    with pytest.raises(MalformedUpdate, match="follow the header"):
        wire.check_beginning(body[:header], len(body) + 1, LAYOUT)
    with pytest.raises(MalformedUpdate, match="claims"):
        wire.check_beginning(b"\xff" * 8, len(body), LAYOUT)
    with pytest.raises(MalformedUpdate, match="do not fit"):
        wire.check_beginning(body[:header], len(body), Layout.of({"other": ((2,), "F32")}))
    nameless = wire.encode_update(LAYOUT, an_update())
    with pytest.raises(MalformedUpdate, match="no sender"):
        wire.check_beginning(nameless[:-1], len(nameless), LAYOUT)
    wire.check_beginning(nameless, len(nameless), LAYOUT, worker="ann")
