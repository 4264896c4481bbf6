"""The modules of /join, run by node: gradients, bytes, digits."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from anarchic import Layout, wire
from anarchic.core.types import Snapshot
from anarchic.data.digits import load_digits
from anarchic.models.softmax import softmax_layout
from anarchic.page.join import digit_bytes
from anarchic.worker import SoftmaxTask
from tests.page.gradients import GRADIENT, MLP, check_gradients, tensors_of
from tests.page.javascript import node
from tests.page.strokes import STROKES

BYTES = "const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;"
TEXT = "const text = (body) => btoa(String.fromCharCode(...new Uint8Array(body)));"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return node(tmp_path_factory.mktemp("node"))


def as_text(data):
    return base64.b64encode(data).decode()


def test_gradients_agree_with_numpy(run):
    check_gradients(run)


def test_a_gradient_by_hand(run):
    # Without weights every class has probability 1/10: the loss is log 10, and the gradient of the
    # bias is 1/10, less 1 for the label. That of the weights is the same times the input.
    tensors = tensors_of({"bias": (10,), "weight": (10, 64)})
    x = [2.0] + [0.0] * 63
    found = run(GRADIENT, {"tensors": tensors, "params": [0] * 650, "x": x, "labels": [3]})
    assert found["loss"] == pytest.approx(np.log(10))
    bias = [0.1] * 3 + [-0.9] + [0.1] * 6
    assert found["gradient"][:10] == pytest.approx(bias)
    assert found["gradient"][10::64] == pytest.approx([2 * value for value in bias])


KNOWN = """async (load, models) => {
  const { modelOf, Unsupported } = await load("models.js");
  return models.map((tensors) => {
    try { return modelOf(tensors).kind; }
    catch (error) { return error instanceof Unsupported ? error.message : String(error); }
  });
}"""


def test_models_are_known_by_their_tensors_and_others_refused_in_a_sentence(run):
    other = "server's model is another"
    models = [
        ({"bias": (10,), "weight": (10, 784)}, "logistic"),
        (MLP, "mlp"),
        ({"bias": (10,), "weight": (10, 3072)}, "reads 3072 numbers and knows 10 classes"),
        ({"bias": (2,), "weight": (2, 64)}, "reads 64 numbers and knows 2 classes"),
        ({"bias": (10,), "weight": (9, 64)}, other),
        ({"weight": (10, 64)}, other),
        ({**MLP, "dense2.weight": (10, 8)}, other),
        ({"conv1.weight": (6, 1, 5, 5)}, other),
        ({"constructor": (10,)}, other),
    ]
    found = run(KNOWN, [tensors_of(shapes) for shapes, _ in models])
    for (_, told), said in zip(models, found, strict=True):
        assert told in said
        assert said.count(".") in (0, 1)


def test_a_snapshot_is_read_as_it_was_written(run):
    layout = softmax_layout(64, 10)
    params = np.random.default_rng(0).standard_normal(layout.dim).astype(np.float32)
    extras = {"control": np.zeros(layout.dim, np.float32)}
    body = wire.encode_snapshot(layout, Snapshot(7, params, extras), run="r", epoch="2")
    source = f"""async (load, given) => {{
      {BYTES}
      const {{ readSnapshot }} = await load("wire.js");
      const found = readSnapshot(bytes(given));
      return {{ ...found, params: Array.from(found.params) }};
    }}"""
    found = run(source, as_text(body))
    assert (found["version"], found["run"], found["epoch"]) == (7, "r", "2")
    assert [tensor["name"] for tensor in found["tensors"]] == list(layout.names)
    assert np.array_equal(np.array(found["params"], np.float32), params)


def test_what_is_no_snapshot_is_an_error(run):
    source = f"""async (load, given) => {{
      {BYTES}
      const {{ readSnapshot }} = await load("wire.js");
      return given.map((text) => {{
        try {{ readSnapshot(bytes(text)); return "read"; }}
        catch (error) {{ return error.message; }}
      }});
    }}"""
    short = b"\x02\0\0\0\0\0\0\0"
    damaged = [
        b"",
        b"\xff" * 8,
        short + b"{}",
        short + b"[",
        short + b"[]",
        b"<!doctype html><p>Proxy",
    ]
    odd = b'{"a": {"dtype": "F32"}}'
    damaged.append(len(odd).to_bytes(8, "little") + odd)
    known = ("safetensors file.", "has no version.", "is damaged: tell the operator.")
    found = run(source, [as_text(each) for each in damaged])
    assert all(told.endswith(known) for told in found), found


def test_an_update_is_what_the_server_reads(run):
    layout = Layout.of({name: (shape, "F32") for name, shape in MLP.items()})
    direction = np.random.default_rng(1).standard_normal(layout.dim).astype(np.float32)
    facts = {"id": "a1", "base_version": 3, "local_steps": 5, "local_lr": 1e-7, "samples": 12,
             "loss": 0.25, "run": "r", "worker": "browser-1"}  # fmt: skip
    source = f"""async (load, {{ tensors, direction, facts }}) => {{
      {TEXT}
      const {{ writeUpdate }} = await load("wire.js");
      return text(writeUpdate(tensors, direction, {{ ...facts, epoch: undefined }}));
    }}"""
    given = {"tensors": tensors_of(MLP), "direction": direction.tolist(), "facts": facts}
    decoded = wire.decode_update(base64.b64decode(run(source, given)), layout)
    update = decoded.update
    assert (update.worker, update.id, update.base_version) == ("browser-1", "a1", 3)
    assert (update.local_steps, update.local_lr, update.samples) == (5, 1e-7, 12)
    assert (decoded.loss, decoded.run, decoded.epoch) == (0.25, "r", None)
    assert np.array_equal(update.direction, direction)


def test_shares_together_are_the_training_digits(run):
    source = f"""async (load, given) => {{
      {BYTES}
      const {{ shareOf }} = await load("digits.js");
      const all = [1, 2, 3].map((number) => shareOf(bytes(given), number, 3));
      return all.map((share) => share.map(({{ x, label }}) => [label, ...x]));
    }}"""
    shares = run(source, as_text(digit_bytes()))
    data = load_digits()
    known = np.column_stack([data.y_train, data.x_train.reshape(len(data.y_train), -1)])
    found = np.array([row for share in shares for row in share])
    assert found.shape == known.shape == (1437, 65)
    for column in range(65):  # in whatever order
        np.testing.assert_allclose(np.sort(found[:, column]), np.sort(known[:, column]), atol=1e-6)
    assert all(len({row[0] for row in share}) == 10 for share in shares)


DRAWN = """async (load, drawings) => {
  const { drawn, digitsForm, mnistForm } = await load("digits.js");
  return drawings.map(({ strokes, inputs }) => {
    const form = inputs === 64 ? digitsForm : mnistForm;
    return { x: Array.from(drawn(strokes, inputs)), form: Array.from(form(strokes)) };
  });
}"""


def drawn(run, drawings, inputs=64):
    """What becomes of drawings, of all in one start of node."""
    return run(DRAWN, [{"strokes": strokes, "inputs": inputs} for strokes in drawings])


@pytest.mark.slow
def test_drawn_digits_look_like_the_embedded_ones_to_a_model(run):
    data = load_digits()
    task = SoftmaxTask(data.x_train, data.y_train, 10, rng=np.random.default_rng(0))
    params = task.init()
    for _ in range(1500):
        params -= 0.1 * task.gradient(params)[0]
    model = task.layout.split(params)
    scores = [
        model["weight"] @ np.array(found["x"]) + model["bias"]
        for found in drawn(run, STROKES.values())
    ]
    read = [int(each.argmax()) for each in scores]
    right = [label for label, each in zip(STROKES, read, strict=True) if label == each]
    assert len(right) >= 9, read


def test_a_drawing_fills_the_form_wherever_and_however_large_it_is(run):
    small = [[[0.1 + x / 5, 0.7 + y / 5] for x, y in stroke] for stroke in STROKES[3]]
    both = drawn(run, (STROKES[3], small))
    forms = [np.array(found["form"]).reshape(8, 8) for found in both]
    np.testing.assert_allclose(*forms, atol=1e-9)
    assert (forms[0].max(axis=1) > 0).all()  # all of the height, as in the embedded digits
    assert forms[0].mean() == pytest.approx(0.305, abs=0.02)
    assert np.array_equal(forms[0] * 16, np.round(forms[0] * 16))


def test_large_drawings_are_made_as_those_of_mnist(run):
    form = np.array(drawn(run, [STROKES[7]], 784)[0]["form"]).reshape(28, 28)
    rows, columns = np.nonzero(form > 0.5)
    assert max(np.ptp(rows), np.ptp(columns)) + 1 == pytest.approx(20, abs=1)
    middle = np.arange(28) + 0.5
    mass = form.sum()
    assert form.sum(axis=1) @ middle / mass == pytest.approx(14, abs=0.2)
    assert form.sum(axis=0) @ middle / mass == pytest.approx(14, abs=0.2)
    assert ((form > 0) & (form < 1)).any()


def test_a_point_and_a_straight_line_are_drawings_too(run):
    for inputs in (64, 784):
        for found in drawn(run, ([[[0.5, 0.5]]], [[[0.5, 0.1], [0.5, 0.9]]]), inputs):
            assert np.isfinite(found["x"]).all()
