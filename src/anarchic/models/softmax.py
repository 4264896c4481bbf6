"""The formulas of softmax regression, the model ``logistic``; they need no torch.

The flat vector holds the bias before the weight, as safetensors orders them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import Layout, Vector
from anarchic.kernels.products import tall_product

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Array = Any  # NumPy or torch: the operators used below are spelt the same in both


def softmax_layout(inputs: int, classes: int, dtype: str = "F32") -> Layout:
    """The tensors of the model ``logistic``."""
    return Layout.of({"weight": ((classes, inputs), dtype), "bias": ((classes,), dtype)})


def gradient_and_loss(
    layout: Layout, params: Vector, x: Floats, y: Integers
) -> tuple[Vector, float]:
    """Of the mean cross-entropy of one model on one batch, the plainest way.

    With P the softmax of the outputs and Y the labels as unit vectors, the gradient of the weights
    is (P - Y)' x / batch, and that of the bias its column sums.
    """
    model, rows = layout.split(params), np.arange(len(y))
    outputs = x @ model["weight"].T + model["bias"]
    outputs -= outputs.max(axis=1, keepdims=True)
    off = np.exp(outputs)
    off /= off.sum(axis=1, keepdims=True)
    loss = -np.log(np.maximum(off[rows, y], 1e-30)).mean()
    off[rows, y] -= 1
    off /= len(y)
    return layout.join({"weight": off.T @ x, "bias": off.sum(axis=0)}), float(loss)


def lane_gradients(params: Array, x: Array, y: Array, classes: int) -> Array:
    """The same gradient for every lane: (lanes, dim) from (lanes, dim), in NumPy or torch.

    P is held with classes before samples, so that every operation runs along memory.
    """
    xp = np if isinstance(params, np.ndarray) else _torch()
    lanes, batch = y.shape
    x = x.reshape(lanes, batch, -1)
    weight = params[:, classes:].reshape(lanes, classes, -1)
    off = weight @ x.swapaxes(1, 2)
    off += params[:, :classes, None]
    off -= xp.amax(off, 1, keepdims=True)
    off = xp.exp(off, out=off)
    off /= off.sum(1, keepdims=True) * batch
    of_lane, of_sample = (_count(n, params) for n in (lanes, batch))
    off[of_lane[:, None], y, of_sample] -= 1 / batch
    gradients = xp.empty_like(params)
    gradients[:, :classes] = off.sum(2)
    xp.matmul(off, x, out=gradients[:, classes:].reshape(lanes, classes, -1))
    return gradients


def lane_metrics(params: Floats, x: Floats, y: Integers, classes: int) -> list[dict[str, float]]:
    """Accuracy and mean cross-entropy of every lane's model on the same samples.

    The samples are read once for all lanes, which is what a small model waits for. The product is
    faster with samples first, all that follows with classes first. BLAS may add in another order
    for another number of lanes, so outputs depend on it in their last bit, and losses with them.
    One product per lane would not, but takes 1.7 times as long for 16 lanes on MNIST.
    """
    lanes = len(params)
    weights = params[:, classes:].reshape(lanes * classes, -1)
    outputs = np.ascontiguousarray(tall_product(x.reshape(len(x), -1), weights.T).T)
    outputs += params[:, :classes].reshape(-1, 1)
    return [_metrics(each, y) for each in outputs.reshape(lanes, classes, -1)]


def _metrics(outputs: Floats, y: Integers) -> dict[str, float]:
    """Of outputs (classes, samples)."""
    right = outputs.argmax(0) == y
    outputs -= outputs.max(0)
    at_label = np.take_along_axis(outputs, y[None], 0)[0]
    logs = np.log(np.exp(outputs).sum(0)) - at_label
    return {"accuracy": float(right.mean()), "loss": float(logs.mean(dtype=np.float64))}


def _count(n: int, like: Array) -> Array:
    """0..n-1 where ``like`` lies: the recording of a GPU's work may not copy from the host."""
    if isinstance(like, np.ndarray):
        return np.arange(n)
    return _torch().arange(n, device=like.device)


def _torch() -> Any:
    import torch

    return torch
