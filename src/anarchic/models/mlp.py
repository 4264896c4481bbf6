"""A network with one hidden layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


class Mlp(nn.Module):
    """Inputs, flattened; ``hidden`` units with ReLU; classes."""

    def __init__(self, inputs: int, classes: int, hidden: int = 128) -> None:
        super().__init__()
        self.dense1 = nn.Linear(inputs, hidden)
        self.dense2 = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense2(relu(self.dense1(x.flatten(1))))
        return out
