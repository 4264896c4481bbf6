"""Gradients in JavaScript against NumPy; run by node and by a browser."""

from __future__ import annotations

import numpy as np

from anarchic.models.softmax import gradient_and_loss, softmax_layout

GRADIENT = """async (load, { tensors, params, x, labels }) => {
  const { modelOf, lossAndGradient } = await load("models.js");
  const model = modelOf(tensors);
  const { loss, gradient } = lossAndGradient(model, Float64Array.from(params), x, labels);
  return { kind: model.kind, loss, gradient: Array.from(gradient) };
}"""
MLP = {
    "dense1.bias": (7,),
    "dense1.weight": (7, 64),
    "dense2.bias": (10,),
    "dense2.weight": (10, 7),
}


def tensors_of(shapes):
    """Tensors as the page reads them from a snapshot."""
    found, start = [], 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        found.append({"name": name, "shape": list(shape), "start": start, "size": size})
        start += size
    return found


def mlp_by_numpy(params, x, labels):
    """(loss, gradient) of one hidden layer with ReLU, in the order of MLP."""
    cuts = np.cumsum([np.prod(shape) for shape in MLP.values()])[:-1]
    b1, w1, b2, w2 = (
        part.reshape(shape)
        for part, shape in zip(np.split(params, cuts), MLP.values(), strict=True)
    )
    hidden = np.maximum(x @ w1.T + b1, 0)
    outputs = hidden @ w2.T + b2
    p = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(p[rows, labels]).mean()
    p[rows, labels] -= 1
    off = p / len(labels)
    before = off @ w2 * (hidden > 0)
    parts = (before.sum(0), before.T @ x, off.sum(0), off.T @ hidden)
    return loss, np.concatenate([part.ravel() for part in parts])


def check_gradients(run):
    """Both models, on random samples, agree with NumPy to 1e-5."""
    rng = np.random.default_rng(3)
    x, labels = rng.standard_normal((32, 64)), rng.integers(0, 10, 32)
    softmax = softmax_layout(64, 10, "F64")
    shapes = dict(zip(softmax.names, softmax.shapes, strict=True))
    for kind, own in {"logistic": shapes, "mlp": MLP}.items():
        tensors = tensors_of(own)
        params = rng.standard_normal(tensors[-1]["start"] + tensors[-1]["size"]) / 4
        given = {"tensors": tensors, "params": params.tolist(), "x": x.ravel().tolist()}
        found = run(GRADIENT, {**given, "labels": labels.tolist()})
        if kind == "logistic":
            gradient, loss = gradient_and_loss(softmax, params, x, labels)
        else:
            loss, gradient = mlp_by_numpy(params, x, labels)
        assert found["kind"] == kind
        np.testing.assert_allclose(found["loss"], loss, atol=1e-5)
        np.testing.assert_allclose(found["gradient"], gradient, atol=1e-5)
        assert np.abs(gradient).max() > 0.05
