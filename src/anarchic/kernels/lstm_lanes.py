"""Gradients of the LSTM for many lanes at once, forward and backward written out.

A lane is one worker's visit: its own parameters, a row of a matrix with its tensors in the order of
their names, and its own batch. Autograd under vmap spends its time on thousands of small operators;
here a time step is one batched product over lanes and a few pointwise operators, and whatever is
not recurrent is one product for all time steps. The gates i, f, n, o are
entry, forget, new and out:

    c_t = f * c_{t-1} + i * n        h_t = o * tanh(c_t)

Any device and any floating dtype; the results are those of autograd to rounding, and repeat bit for
bit: the embedding is a product with one-hot rows, so that nothing is added in an open order.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anarchic.errors import ConfigError
from anarchic.kernels import Shapes, length_of, slices_of


@dataclass(frozen=True)
class Sizes:
    """Sizes of an ``Lstm``."""

    classes: int
    embedding: int
    hidden: int
    layers: int

    @staticmethod
    def of(shapes: Shapes) -> Sizes:
        """From the shapes of the tensors of an ``Lstm``."""
        try:
            classes, embedding = shapes["embedding.weight"]
            hidden = shapes["dense.weight"][1]
        except (KeyError, ValueError) as error:
            raise ConfigError(f"No Lstm has tensors {dict(shapes)}.") from error
        return Sizes(classes, embedding, hidden, sum("weight_hh_l" in name for name in shapes))

    @cached_property
    def shapes(self) -> Shapes:
        """In the order of the flat vector, which is that of the names."""
        gates = 4 * self.hidden
        shapes: dict[str, tuple[int, ...]] = {
            "embedding.weight": (self.classes, self.embedding),
            "dense.weight": (self.classes, self.hidden),
            "dense.bias": (self.classes,),
        }
        for layer in range(self.layers):
            inputs = self.hidden if layer else self.embedding
            shapes[f"lstm.weight_ih_l{layer}"] = (gates, inputs)
            shapes[f"lstm.weight_hh_l{layer}"] = (gates, self.hidden)
            shapes[f"lstm.bias_ih_l{layer}"] = shapes[f"lstm.bias_hh_l{layer}"] = (gates,)
        return dict(sorted(shapes.items()))

    def split(self, params: Tensor) -> dict[str, Tensor]:
        """(lanes, dim) as named tensors with a leading axis of lanes (views)."""
        dim = length_of(self.shapes)
        if params.ndim != 2 or params.shape[1] != dim:
            raise ConfigError(
                f"{self} has {dim} parameters per lane, the matrix has shape "
                f"{tuple(params.shape)}: give the shapes of the model that made it."
            )
        places = slices_of(self.shapes)
        return {
            name: params[:, places[name]].view(-1, *shape) for name, shape in self.shapes.items()
        }

    def join(self, gradients: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([gradients[name].flatten(1) for name in self.shapes], dim=1)


class Tape(NamedTuple):
    """What the backward pass of a layer needs; time is the second axis, time 0 the start."""

    gates: Tensor  # activated i, f, n, o: (lanes, length, batch, 4, hidden)
    cells: Tensor  # c: (lanes, length + 1, batch, hidden)
    states: Tensor  # h: (lanes, length + 1, batch, hidden)


def lane_gradients(
    params: Tensor, tokens: Tensor, y: Tensor, *, shapes: Shapes, precision: str = "ieee"
) -> Tensor:
    """Gradient of the mean cross-entropy of each lane's batch: (lanes, dim).

    ``tokens`` are (lanes, batch, length) integers of any width, ``y`` (lanes, batch) classes.
    Products are those of torch, whatever the ``precision``.
    """
    sizes = Sizes.of(shapes)
    weights = sizes.split(params)
    words = one_hot(tokens.transpose(1, 2), sizes.classes, params.dtype)
    inputs = per_lane(words) @ weights["embedding.weight"]
    fed, tapes = [inputs], []
    for layer in range(sizes.layers):
        tapes.append(_forward(weights, layer, fed[-1], tokens.shape))
        fed.append(per_lane(tapes[-1].states[:, 1:]))
    last = tapes[-1].states[:, -1]
    gradients, d_last = dense_gradients(weights, last, y)

    d_states = torch.zeros_like(tapes[-1].states[:, 1:])
    d_states[:, -1] = d_last
    for layer in reversed(range(sizes.layers)):
        d_gates = _backward(weights[f"lstm.weight_hh_l{layer}"], tapes[layer], d_states)
        flat = per_lane(d_gates)
        before = per_lane(tapes[layer].states[:, :-1])
        gradients[f"lstm.weight_ih_l{layer}"] = flat.mT @ fed[layer]
        gradients[f"lstm.weight_hh_l{layer}"] = flat.mT @ before
        gradients[f"lstm.bias_ih_l{layer}"] = flat.sum(1)
        gradients[f"lstm.bias_hh_l{layer}"] = gradients[f"lstm.bias_ih_l{layer}"]
        d_inputs = flat @ weights[f"lstm.weight_ih_l{layer}"]
        d_states = d_inputs.view(*d_gates.shape[:3], -1)
    gradients["embedding.weight"] = per_lane(words).mT @ d_inputs
    return sizes.join(gradients)


def one_hot(tokens: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    return (tokens.unsqueeze(-1) == torch.arange(classes, device=tokens.device)).to(dtype)


def per_lane(array: Tensor) -> Tensor:
    """(lanes, length, batch, columns) as one matrix per lane, for products over all time steps."""
    return array.flatten(1, 2)


def dense_gradients(
    weights: Mapping[str, Tensor], last: Tensor, y: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Of the dense layer under mean cross-entropy, and of its input, the last state."""
    weight, bias = weights["dense.weight"], weights["dense.bias"]
    outputs = torch.baddbmm(bias.unsqueeze(1), last, weight.mT)
    right = one_hot(y, outputs.shape[2], outputs.dtype)
    d_outputs = (outputs.softmax(-1) - right) / y.shape[1]
    gradients = {"dense.weight": d_outputs.mT @ last, "dense.bias": d_outputs.sum(1)}
    return gradients, d_outputs @ weight


def _forward(weights: Mapping[str, Tensor], layer: int, inputs: Tensor, shape: torch.Size) -> Tape:
    lanes, batch, length = shape
    recurrent = weights[f"lstm.weight_hh_l{layer}"].mT
    bias = weights[f"lstm.bias_ih_l{layer}"] + weights[f"lstm.bias_hh_l{layer}"]
    hidden = recurrent.shape[1]
    gates = torch.baddbmm(bias.unsqueeze(1), inputs, weights[f"lstm.weight_ih_l{layer}"].mT)
    gates = gates.view(lanes, length, batch, 4 * hidden)
    states = gates.new_zeros(lanes, length + 1, batch, hidden)
    cells = torch.zeros_like(states)
    for t in range(length):
        now = torch.baddbmm(gates[:, t], states[:, t], recurrent)
        now[..., : 2 * hidden].sigmoid_()
        now[..., 2 * hidden : 3 * hidden].tanh_()
        now[..., 3 * hidden :].sigmoid_()
        entry, forget, new, out = now.chunk(4, dim=-1)
        cell = torch.mul(forget, cells[:, t], out=cells[:, t + 1]).addcmul_(entry, new)
        torch.mul(out, cell.tanh(), out=states[:, t + 1])
        gates[:, t] = now
    return Tape(gates.view(lanes, length, batch, 4, hidden), cells, states)


def _backward(recurrent: Tensor, tape: Tape, d_states: Tensor) -> Tensor:
    """Gradients of the gates before activation, (lanes, length, batch, 4 * hidden).

    All factors that do not depend on later time steps are computed at once, in place of the gates.
    """
    entry, forget, new, out = tape.gates.unbind(3)
    squashed = tape.cells[:, 1:].tanh()
    into_cell = out * (1 - squashed * squashed)  # dh_t -> dc_t
    kept = forget.clone()  # dc_t -> dc_{t-1}
    slopes = torch.stack(
        (
            new * entry * (1 - entry),
            tape.cells[:, :-1] * forget * (1 - forget),
            entry * (1 - new * new),
            squashed * out * (1 - out),
        ),
        dim=3,
    )
    d_gates = slopes.flatten(3)
    d_state, d_cell = d_states[:, -1], torch.zeros_like(d_states[:, -1])
    for t in reversed(range(d_states.shape[1])):
        d_cell = torch.addcmul(d_cell, d_state, into_cell[:, t])
        slopes[:, t, :, :3] *= d_cell.unsqueeze(2)
        slopes[:, t, :, 3] *= d_state
        d_cell = d_cell * kept[:, t]
        if t:
            d_state = torch.baddbmm(d_states[:, t - 1], d_gates[:, t], recurrent)
    return d_gates


def fused_states(cells: Any, x: Tensor) -> Tensor:
    """All states of ``LstmCells``, by cuDNN on a GPU: fast, but without a gradient over lanes."""
    with warnings.catch_warnings():  # the weights are views of one vector, in another order
        warnings.filterwarnings("ignore", "RNN module weights are not part")
        return states_of(dict(cells.named_parameters()), x, cells.layers, cells.hidden)


def states_of(weights: Mapping[str, Tensor], x: Tensor, layers: int, hidden: int) -> Tensor:
    """All states of the last layer, (batch, length, hidden), by torch's own layers."""
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    listed = [weights[f"{kind}_l{layer}"] for layer in range(layers) for kind in kinds]
    zero = x.new_zeros(layers, len(x), hidden)
    has_biases, dropout, bidirectional, batch_first = True, 0.0, False, True
    how = has_biases, layers, dropout, torch.is_grad_enabled(), bidirectional, batch_first
    states: Tensor = torch.lstm(x, (zero, zero), listed, *how)[0]
    return states
