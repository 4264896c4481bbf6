"""Softmax regression as a module: the paper's LR on MNIST, for GPUs and augmented images.

On a CPU the model ``logistic`` is computed in NumPy, without this module, by
``train.logistic_task``.
"""

from __future__ import annotations

from torch import Tensor, nn

from anarchic.models.softmax import lane_gradients


class Logistic(nn.Linear):
    """Inputs, flattened, times a matrix, plus a bias; zero at first."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))

    def lane_gradients(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradients of the mean cross-entropy, (lanes, dim), in closed form."""
        found: Tensor = lane_gradients(params, x, y, self.out_features)
        return found
