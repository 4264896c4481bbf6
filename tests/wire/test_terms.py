"""What snapshots and model files say about rule, server rate and buffers."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from anarchic import Layout, Snapshot, wire
from anarchic.core.types import Terms
from anarchic.errors import RunError

LAYOUT = Layout.of(
    {"w": ((2,), "F32"), "bn.running_mean": ((1,), "F32"), "bn.running_var": ((1,), "F32")},
    buffers=["bn.running_var", "bn.running_mean"],
)
AVERAGE = Terms("afa-cd", 0.5, "average", LAYOUT.buffers)


def pulled(terms, layout=LAYOUT):
    params = np.arange(layout.dim, dtype=np.float32)
    body = wire.encode_snapshot(layout, Snapshot(3, params, terms=terms), "run-a")
    return wire.decode_snapshot(body)


def test_a_snapshot_says_what_becomes_of_an_update():
    layout, snapshot, _ = pulled(AVERAGE)
    assert layout == LAYOUT
    assert snapshot.terms == AVERAGE
    assert snapshot.layout == layout
    assert snapshot.tensors["w"].tolist() == [2.0, 3.0]


def test_buffers_that_stay_with_the_workers_are_no_tensors_of_the_model():
    terms = Terms(buffers="local", buffer_names=("bn.running_mean",))
    layout, snapshot, _ = pulled(terms, Layout.of({"w": ((2,), "F32")}))
    assert layout.buffers == ()
    assert snapshot.terms == terms


def test_a_snapshot_of_an_earlier_server_says_nothing():
    layout, snapshot, _ = pulled(Terms(), Layout.of({"w": ((2,), "F32")}))
    assert layout.buffers == ()
    assert snapshot.terms == Terms()


def test_a_rule_whose_name_has_no_form_in_metadata_is_left_out():
    assert pulled(Terms(rule="of my own"))[1].terms.rule is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "must be as"),
        ("[" * 100_000, "must be as"),
        ('{"policy": "sum", "names": []}', "average or local"),
        ('{"policy": "average", "names": "w"}', "must be as"),
        ('{"policy": "average", "names": [1]}', "must be as"),
        ('{"policy": "average", "names": ["\\u001b[31m"]}', "does not hold"),
    ],
)
def test_buffers_that_cannot_be_right_are_refused(tmp_path, text, told):
    save_file({"w": np.ones(1, np.float32)}, tmp_path / "model", {"buffers": text})
    with pytest.raises(RunError, match=told) as caught:
        wire.load_model(tmp_path / "model")
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()
    facts = {"version": "1", "run": "run-a", "buffers": text}
    save_file({"w": np.ones(1, np.float32)}, tmp_path / "model", facts)
    with pytest.raises(RunError, match=told):
        wire.decode_snapshot((tmp_path / "model").read_bytes())


def test_a_model_file_names_its_buffers(tmp_path):
    params = np.arange(4, dtype=np.float32)
    wire.save_model(tmp_path / "model", LAYOUT, params)
    layout, _, metadata = wire.load_model(tmp_path / "model")
    assert layout == LAYOUT
    assert json.loads(metadata["buffers"]) == {
        "policy": "average",
        "names": ["bn.running_mean", "bn.running_var"],
    }


def test_every_kind_of_tensor_can_be_read(tmp_path):
    arrays = {
        "half": np.array([1.5], np.float16),
        "wide": np.array([[2.5]]),
        "count": np.array(7, np.int64),
        "mask": np.array([True, False]),
        "bytes": np.array([255], np.uint8),
    }
    save_file(arrays, tmp_path / "model", {"format": "pt"})
    found, metadata = wire.load_tensors(tmp_path / "model")
    assert metadata == {"format": "pt"}
    assert {name: (a.tolist(), dtype) for name, (a, dtype) in found.items()} == {
        "half": ([1.5], "F16"),
        "wide": ([[2.5]], "F64"),
        "count": (7.0, "I64"),
        "mask": ([1.0, 0.0], "BOOL"),
        "bytes": ([255.0], "U8"),
    }
