"""Softmax regression in NumPy: the model ``logistic`` for workers without torch."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from anarchic.core.types import Vector
from anarchic.errors import ConfigError
from anarchic.models.softmax import gradient_and_loss, softmax_layout


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
        """On a random batch, with the loss there and the samples held."""
        picked = self._rng.integers(len(self._y), size=min(self._batch, len(self._y)))
        x, y = self._x[picked], self._y[picked]
        gradient, loss = gradient_and_loss(self.layout, params, x, y)
        return gradient, loss, len(self._y)
