"""The paper's character model for Shakespeare."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from anarchic.kernels import find


class Lstm(nn.Module):
    """An embedding of 8 dimensions, two LSTM layers of 100 units, a dense layer on the last state.

    ``nn.LSTM`` cannot be batched over parameters, so the cell is written with plain operators;
    names, shapes, gate order and initialisation are those of ``nn.LSTM``.
    """

    kernels = "lstm"  # the fast forms of its gradient in anarchic.kernels

    def __init__(
        self, classes: int, embedding: int = 8, hidden: int = 100, layers: int = 2
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = LstmCells(embedding, hidden, layers)
        self.dense = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.lstm(self.embedding(tokens))
        out: Tensor = self.dense(states[:, -1])
        return out


class LstmCells(nn.Module):
    """Layers of LSTM cells: (batch, time, inputs) -> (batch, time, hidden)."""

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.hidden, self.layers = hidden, layers
        bound = 1 / math.sqrt(hidden)
        for layer in range(layers):
            shapes = {
                f"weight_ih_l{layer}": (4 * hidden, inputs if layer == 0 else hidden),
                f"weight_hh_l{layer}": (4 * hidden, hidden),
                f"bias_ih_l{layer}": (4 * hidden,),
                f"bias_hh_l{layer}": (4 * hidden,),
            }
            for name, shape in shapes.items():
                self.register_parameter(name, nn.Parameter(torch.empty(shape)))
                nn.init.uniform_(getattr(self, name), -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        fused = find("lstm_states") if x.is_cuda and not torch.is_grad_enabled() else None
        if fused is not None:
            found: Tensor = fused(self, x)
            return found
        for layer in range(self.layers):
            x = self._layer(x, layer)
        return x

    def _layer(self, x: Tensor, layer: int) -> Tensor:
        recurrent = getattr(self, f"weight_hh_l{layer}").t()
        bias = getattr(self, f"bias_ih_l{layer}") + getattr(self, f"bias_hh_l{layer}")
        # The inputs of all time steps go through their gates in one product.
        gates = x @ getattr(self, f"weight_ih_l{layer}").t() + bias
        h = c = torch.zeros_like(gates[:, 0, : self.hidden])
        states = []
        for t in range(x.shape[1]):
            entry, forget, new, out = (gates[:, t] + h @ recurrent).chunk(4, dim=-1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(entry) * torch.tanh(new)
            h = torch.sigmoid(out) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, dim=1)
