"""Softmax regression: the paper's LR on MNIST."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Array = Any  # NumPy or torch: the operators used below are spelt the same in both


class Logistic(nn.Linear):
    """Inputs, flattened, times a matrix, plus a bias; zero at first."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    in_numpy = True  # its arrays are small, and NumPy's small products are the faster

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))

    def lane_metrics(self, params: Floats, x: Floats, y: Integers) -> list[dict[str, float]]:
        """Accuracy and mean cross-entropy of every lane's model on the same samples.

        The samples are read once for all lanes, which is what a small model waits for. The
        product is faster with samples first, all that follows with classes first.
        """
        lanes, classes = len(params), self.out_features
        weights = params[:, classes:].reshape(lanes * classes, -1)
        outputs = np.ascontiguousarray((x.reshape(len(x), -1) @ weights.T).T)
        outputs += params[:, :classes].reshape(-1, 1)
        return [_metrics(each, y) for each in outputs.reshape(lanes, classes, -1)]

    def lane_gradients(self, params: Array, x: Array, y: Array) -> Array:
        """Gradients of the mean cross-entropy, (lanes, dim), in closed form.

        With P the softmax of the outputs and Y the labels as unit vectors, the gradient of the
        weights is (P - Y)' x / batch and that of the bias its column sums. P is held with classes
        before samples, so that every operation runs along memory. The vector holds the bias
        before the weight, as safetensors orders them.
        """
        xp = np if isinstance(params, np.ndarray) else torch
        lanes, batch = y.shape
        x = x.reshape(lanes, batch, self.in_features)
        weight = params[:, self.out_features :].reshape(lanes, self.out_features, -1)
        off = weight @ x.swapaxes(1, 2)
        off += params[:, : self.out_features, None]
        off -= xp.amax(off, 1, keepdims=True)
        off = xp.exp(off, out=off)
        off /= off.sum(1, keepdims=True) * batch
        of_lane, of_sample = (_count(n, params) for n in (lanes, batch))
        off[of_lane[:, None], y, of_sample] -= 1 / batch
        gradients = xp.empty_like(params)
        gradients[:, : self.out_features] = off.sum(2)
        into = gradients[:, self.out_features :].reshape(lanes, self.out_features, -1)
        xp.matmul(off, x, out=into)
        return gradients


def _count(n: int, like: Array) -> Array:
    """0..n-1 where ``like`` lies: the recording of a GPU's work may not copy from the host."""
    if isinstance(like, np.ndarray):
        return np.arange(n)
    return torch.arange(n, device=like.device)


def _metrics(outputs: Floats, y: Integers) -> dict[str, float]:
    """Of outputs (classes, samples)."""
    right = outputs.argmax(0) == y
    outputs -= outputs.max(0)
    at_label = np.take_along_axis(outputs, y[None], 0)[0]
    logs = np.log(np.exp(outputs).sum(0)) - at_label
    return {"accuracy": float(right.mean()), "loss": float(logs.mean(dtype=np.float64))}
