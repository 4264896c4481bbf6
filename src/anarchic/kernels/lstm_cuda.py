"""Gradients of the LSTM over lanes on a GPU: each recurrence is one kernel for all time steps.

A program holds one lane and up to 16 rows of its batch, and walks through time with the recurrent
weights on chip; cells and the gradients that travel back stay in registers. What is not recurrent
is a batched product over lanes.

Precision "bf16" means, with float32 accumulation and pointwise arithmetic throughout:

- float16: recurrent operands of the forward pass (state and weights are small, so that it is as
  good as TF32), the first layer's input gates, and what is stored for the backward pass (activated
  gates and cells);
- bfloat16, for its range: recurrent operands of the backward pass, states and gradients of gates as
  they enter products over all time steps, input gates of upper layers;
- float32: parameters, the dense layer and the loss, the embedding, the gradients returned.

The input of the first layer takes one of few values in a lane, so its gates are a table that the
kernel looks up, and the gradient of that table is a product with one-hot rows: nothing is added in
an open order, and repeats are equal to the last bit.
"""

# Kernels are untyped.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from anarchic.kernels import Shapes, lstm_lanes
from anarchic.kernels.lstm_lanes import Sizes, dense_gradients, one_hot, per_lane
from anarchic.kernels.lstm_recurrence_cuda import backward_kernel, forward_kernel

ROWS = 16  # of a batch in one program: the least that a tensor core multiplies
ALIGNED = 8  # columns of half precision: products are slow where rows start elsewhere


@dataclass(frozen=True)
class Plan:
    """How a kernel is compiled; benchmarks/kernels_lstm.py finds the best."""

    hoist: bool = True  # weights are read once and kept, or read again at each time step from L2
    warps: int = 8
    stages: int = 2  # loads in flight ahead of their use
    approximate: bool = True  # tanh as one instruction with an error of 2**-11, as of float16


FORWARD = Plan(warps=8, stages=2)
BACKWARD = Plan(warps=4, stages=3)


class Tape(NamedTuple):
    """What the backward pass of a layer needs."""

    gates: Tensor  # activated i, f, n, o: (lanes, length, batch, 4 * hidden)
    cells: Tensor  # c_1 ... c_length: (lanes, length, batch, hidden)
    states: Tensor  # h_0 ... h_length, a column of ones, zeros: (lanes, length + 1, batch, wide)
    last: Tensor  # h_length: (lanes, batch, hidden), float32


def lane_gradients(
    params: Tensor, tokens: Tensor, y: Tensor, *, shapes: Shapes, precision: str
) -> Tensor:
    """As ``lstm_lanes.lane_gradients``, which also serves every precision but "bf16"."""
    if precision != "bf16":
        return lstm_lanes.lane_gradients(params, tokens, y, shapes=shapes, precision=precision)
    sizes = Sizes.of(shapes)
    weights = sizes.split(params)
    tapes = [first_forward(weights, tokens)]
    for layer in range(1, sizes.layers):
        tapes.append(upper_forward(weights, layer, tapes[-1].states[:, 1:]))
    gradients, d_last = dense_gradients(weights, tapes[-1].last, y)
    d_states = None
    for layer in reversed(range(sizes.layers)):
        d_gates = backward(weights[f"lstm.weight_hh_l{layer}"], tapes[layer], d_last, d_states)
        before = per_lane(tapes[layer].states[:, :-1])
        flat = per_lane(d_gates)
        gradients[f"lstm.weight_hh_l{layer}"] = product(flat.mT, before)[..., : sizes.hidden]
        if layer:
            d_states = upper_gradients(gradients, weights, layer, flat, tapes[layer - 1].states)
        else:
            first_gradients(gradients, weights, flat, tokens)
    return sizes.join(gradients)


def first_forward(weights: Mapping[str, Tensor], tokens: Tensor) -> Tape:
    table = torch.baddbmm(
        _bias(weights, 0).unsqueeze(1),
        weights["embedding.weight"],
        weights["lstm.weight_ih_l0"].mT,
    )
    return forward(weights["lstm.weight_hh_l0"], table.half(), tokens.contiguous())


def upper_forward(weights: Mapping[str, Tensor], layer: int, below: Tensor) -> Tape:
    """``below`` ends in a column of ones, which meets the bias."""
    gates = per_lane(below) @ _with_bias(weights, layer, below.shape[3]).mT
    return forward(
        weights[f"lstm.weight_hh_l{layer}"], gates.view(*below.shape[:3], gates.shape[2]), None
    )


def upper_gradients(
    gradients: dict[str, Tensor],
    weights: Mapping[str, Tensor],
    layer: int,
    d_gates: Tensor,
    below: Tensor,
) -> Tensor:
    """Fills in those of what feeds a layer above the first; returns that of the states below."""
    lanes, times, batch, wide = below.shape
    hidden = weights[f"lstm.weight_ih_l{layer}"].shape[2]
    found = product(d_gates.mT, per_lane(below[:, 1:]))
    gradients[f"lstm.weight_ih_l{layer}"] = found[..., :hidden]
    gradients[f"lstm.bias_ih_l{layer}"] = found[..., hidden]
    gradients[f"lstm.bias_hh_l{layer}"] = found[..., hidden]
    d_states = d_gates @ _with_bias(weights, layer, wide)
    return d_states.view(lanes, times - 1, batch, wide)


def first_gradients(
    gradients: dict[str, Tensor], weights: Mapping[str, Tensor], d_gates: Tensor, tokens: Tensor
) -> None:
    """Fills in those of what feeds the first layer: all come from the gradient of its table."""
    embedding = weights["embedding.weight"]
    words = per_lane(one_hot(tokens.transpose(1, 2), embedding.shape[1], d_gates.dtype))
    d_table = product(words.mT, d_gates)
    gradients["lstm.weight_ih_l0"] = d_table.mT @ embedding
    gradients["embedding.weight"] = d_table @ weights["lstm.weight_ih_l0"]
    gradients["lstm.bias_ih_l0"] = gradients["lstm.bias_hh_l0"] = d_table.sum(1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Of half-precision matrices, in float32."""
    if a.is_cuda:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def forward(
    recurrent: Tensor, inputs: Tensor, tokens: Tensor | None, plan: Plan | None = None
) -> Tape:
    """Through all time steps of a layer.

    ``inputs`` are gates before activation: (lanes, length, batch, 4 * hidden), or with ``tokens``
    (lanes, batch, length) a table of them, (lanes, classes, 4 * hidden).
    """
    plan = plan or FORWARD
    lanes, hidden = recurrent.shape[0], recurrent.shape[2]
    if tokens is None:
        length, batch = inputs.shape[1:3]
    else:
        batch, length = tokens.shape[1:]
    new, wide = inputs.new_empty, _up_to(hidden + 1, ALIGNED)
    tape = Tape(
        new((lanes, length, batch, 4 * hidden), dtype=torch.float16),
        new((lanes, length, batch, hidden), dtype=torch.float16),
        inputs.new_zeros((lanes, length + 1, batch, wide), dtype=torch.bfloat16),
        new((lanes, batch, hidden), dtype=torch.float32),
    )
    tape.states[..., hidden] = 1
    padded = _padded(recurrent, torch.float16)
    forward_kernel[(lanes, -(-batch // ROWS))](
        inputs,
        inputs if tokens is None else tokens,
        padded,
        *tape,
        batch,
        inputs.shape[1],
        LENGTH=length,
        HIDDEN=hidden,
        WIDE=wide,
        PADDED=padded.shape[-1],
        ROWS=ROWS,
        LOOKUP=tokens is not None,
        HOIST=plan.hoist,
        APPROXIMATE=plan.approximate and recurrent.is_cuda,
        num_warps=plan.warps,
        num_stages=plan.stages,
    )
    return tape


def backward(
    recurrent: Tensor, tape: Tape, d_last: Tensor, d_states: Tensor | None, plan: Plan | None = None
) -> Tensor:
    """Back through all time steps: gradients of the gates before activation, as bfloat16.

    The top layer is fed by ``d_last`` alone, the others by ``d_states`` of all times alone.
    """
    plan = plan or BACKWARD
    lanes, length, batch, hidden = tape.cells.shape
    d_gates = torch.empty_like(tape.gates, dtype=torch.bfloat16)
    # Triton's interpreter, which runs the kernels on a CPU, cannot multiply bfloat16.
    padded = _padded(recurrent, torch.bfloat16 if recurrent.is_cuda else torch.float32)
    backward_kernel[(lanes, -(-batch // ROWS))](
        tape.gates,
        tape.cells,
        padded,
        d_last if d_states is None else d_states,
        d_gates,
        batch,
        LENGTH=length,
        HIDDEN=hidden,
        WIDE=hidden if d_states is None else d_states.shape[3],
        PADDED=padded.shape[-1],
        ROWS=ROWS,
        LAST_ONLY=d_states is None,
        HOIST=plan.hoist,
        APPROXIMATE=plan.approximate and recurrent.is_cuda,
        num_warps=plan.warps,
        num_stages=plan.stages,
    )
    return d_gates


def _bias(weights: Mapping[str, Tensor], layer: int) -> Tensor:
    return weights[f"lstm.bias_ih_l{layer}"] + weights[f"lstm.bias_hh_l{layer}"]


def _with_bias(weights: Mapping[str, Tensor], layer: int, wide: int) -> Tensor:
    """The input weights, the bias as a further column, zeros: (lanes, 4 * hidden, wide)."""
    weight = weights[f"lstm.weight_ih_l{layer}"]
    lanes, gates, hidden = weight.shape
    joined = weight.new_zeros((lanes, gates, wide), dtype=torch.bfloat16)
    joined[..., :hidden] = weight
    joined[..., hidden] = _bias(weights, layer)
    return joined


def _padded(recurrent: Tensor, dtype: torch.dtype) -> Tensor:
    """The four recurrent matrices with zeros up to a power of two, as a kernel multiplies them."""
    lanes, _, hidden = recurrent.shape
    size = max(16, 1 << (hidden - 1).bit_length())
    padded = recurrent.new_zeros((lanes, 4, size, size), dtype=dtype)
    padded[..., :hidden, :hidden] = recurrent.view(lanes, 4, hidden, hidden)
    return padded


def _up_to(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
