"""Gradients of the LSTM on a CPU: one lane after another, by torch's own fused layers.

The weights of one lane stay in a core's cache for all time steps, and a layer is one operator. That
takes half of the time of ``lstm_lanes``, which has a product for every time step over all lanes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, linear

from anarchic.kernels import Shapes
from anarchic.kernels.lstm_lanes import Sizes, states_of


def lane_gradients(
    params: Tensor, tokens: Tensor, y: Tensor, *, shapes: Shapes, precision: str = "ieee"
) -> Tensor:
    """Gradient of the mean cross-entropy of each lane's batch: (lanes, dim).

    ``tokens`` are (lanes, batch, length) integers of any width, ``y`` (lanes, batch) classes.
    """
    sizes = Sizes.of(shapes)
    lanes = zip(params.unsqueeze(1), tokens, y, strict=True)
    return torch.cat([_gradient(sizes, *lane) for lane in lanes])


def _gradient(sizes: Sizes, params: Tensor, tokens: Tensor, y: Tensor) -> Tensor:
    """(1, dim) for the one lane of ``params``."""
    named = {name: tensor[0].detach() for name, tensor in sizes.split(params).items()}
    weights = {name: tensor.requires_grad_() for name, tensor in named.items()}
    words = embedding(tokens.long(), weights["embedding.weight"])
    lstm = {name.removeprefix("lstm."): tensor for name, tensor in weights.items()}
    last = states_of(lstm, words, sizes.layers, sizes.hidden)[:, -1]
    outputs = linear(last, weights["dense.weight"], weights["dense.bias"])
    found = torch.autograd.grad(cross_entropy(outputs, y), list(weights.values()))
    return sizes.join({n: each.unsqueeze(0) for n, each in zip(weights, found, strict=True)})
