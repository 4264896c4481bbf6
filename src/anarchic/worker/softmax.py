"""Softmax regression in NumPy: the model ``logistic`` for workers without torch."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError


def softmax_layout(inputs: int, classes: int) -> Layout:
    """The tensors of the model ``logistic``."""
    return Layout.of({"weight": ((classes, inputs), "F32"), "bias": ((classes,), "F32")})


@final
class SoftmaxTask:
    """Mean cross-entropy of a linear classifier on this worker's samples, in random batches."""

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        classes: int,
        *,
        batch: int = 32,
        rng: Generator | None = None,
    ) -> None:
        labels = np.asarray(y)
        samples = np.asarray(x, np.float32)
        if len(labels) == 0 or len(labels) != len(samples) or batch < 1:
            raise ConfigError(
                f"Softmax regression needs samples with labels and a batch of at least 1, got "
                f"{len(samples)} samples, {len(labels)} labels, batch={batch}."
            )
        self._x, self._y = samples.reshape(len(labels), -1), labels
        self._batch, self._rng = batch, rng or np.random.default_rng()
        self.layout = softmax_layout(self._x.shape[1], classes)

    def init(self) -> Vector:
        return np.zeros(self.layout.dim, np.float32)

    def gradient(self, params: Vector) -> tuple[Vector, float, int]:
        """With P the softmax of the outputs, Y the labels: (P - Y)' x / batch for the weights."""
        picked = self._rng.integers(len(self._y), size=min(self._batch, len(self._y)))
        x, y = self._x[picked], self._y[picked]
        model, rows = self.layout.split(params), np.arange(len(y))
        outputs = x @ model["weight"].T + model["bias"]
        outputs -= outputs.max(axis=1, keepdims=True)
        off = np.exp(outputs)
        off /= off.sum(axis=1, keepdims=True)
        loss = -np.log(np.maximum(off[rows, y], 1e-30)).mean()
        off[rows, y] -= 1
        off /= len(y)
        gradient = self.layout.join({"weight": off.T @ x, "bias": off.sum(axis=0)})
        return gradient, float(loss), len(self._y)
