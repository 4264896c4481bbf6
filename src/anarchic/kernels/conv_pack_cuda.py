"""How images and weights of a 5x5 convolution lie for its GPU kernels, and the way there and back.

Images lie with their channels innermost. Weights are *spread* into the (6 x 6 x channels,
4 x outputs) matrix that ``conv_cuda`` describes, and their gradients folded back. Offsets within a
lane are 32-bit, between lanes 64-bit.
"""

# Triton is untyped, and kernels are Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anarchic.errors import ConfigError
from anarchic.kernels.tiles_cuda import NO_TRITON

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    raise ConfigError(NO_TRITON) from missing


@dataclass(frozen=True)
class Conv:
    """A 5x5 convolution with ReLU and 2x2 pooling over square images, channels innermost."""

    size: int
    channels: int  # as stored, a multiple of four
    given: int  # of these, channels that have weights
    outputs: int

    @property
    def pooled(self) -> int:
        return (self.size - 4) // 2

    @property
    def depth(self) -> int:
        """Numbers in the 6x6 patch under a pooled position."""
        return 36 * self.channels


def pack_images(x: Tensor, conv: Conv, dtype: torch.dtype) -> Tensor:
    """(lanes, batch, channels, size, size) -> (lanes, batch, size, size, stored channels)."""
    lanes, batch = x.shape[:2]
    x = x.contiguous()
    out = x.new_empty((lanes, batch, conv.size, conv.size, conv.channels), dtype=dtype)
    pixels = lanes * batch * conv.size**2
    _pack_images[(triton.cdiv(pixels, 1024),)](
        x, out, pixels, conv.size**2, conv.given, conv.channels, 1024
    )
    return out


@triton.jit
def _pack_images(
    x, out, pixels, PLANE: tl.constexpr, GIVEN: tl.constexpr, STORED: tl.constexpr, B: tl.constexpr
):
    """x (images, GIVEN, PLANE) -> out (images, PLANE, STORED), zeros where no channel is given."""
    pixel = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    source = pixel // PLANE * (GIVEN * PLANE) + pixel % PLANE
    group = tl.arange(0, 4)
    for first in tl.static_range(0, STORED, 4):
        channel = first + group[None, :]
        inside = pixel[:, None] < pixels
        value = tl.load(
            x + source[:, None] + channel * PLANE, mask=inside & (channel < GIVEN), other=0
        )
        tl.store(out + pixel[:, None] * STORED + channel, value.to(out.dtype.element_ty), inside)


def spread_weights(weight: Tensor, conv: Conv, dtype: torch.dtype) -> Tensor:
    """(lanes, outputs * given * 25) -> (lanes, 6 * 6 * channels, 4 * outputs), as above."""
    lanes = len(weight)
    out = weight.new_empty((lanes, conv.depth, 4 * conv.outputs), dtype=dtype)
    _spread_weights[(triton.cdiv(conv.depth, 32), lanes)](
        weight, out, weight.stride(0), conv.channels, conv.given, conv.outputs, 32, num_warps=8
    )
    return out


@triton.jit
def _spread_weights(
    weight,
    out,
    stride,
    CHANNELS: tl.constexpr,
    GIVEN: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[lane, (uy, ux, c), (wy, wx, o)] = weight[lane, o, c, uy - wy, ux - wx], or zero."""
    lane = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, 4 * OUTPUTS)[None, :]
    channel, window, output = row % CHANNELS, column // OUTPUTS, column % OUTPUTS
    ky = row // (6 * CHANNELS) - window // 2
    kx = row // CHANNELS % 6 - window % 2
    inside = (ky >= 0) & (ky < 5) & (kx >= 0) & (kx < 5) & (channel < GIVEN)
    source = ((output * GIVEN + channel) * 5 + ky) * 5 + kx
    value = tl.load(weight + lane * stride + source, mask=inside, other=0)
    target = lane * (36 * CHANNELS * 4 * OUTPUTS) + row * (4 * OUTPUTS) + column
    tl.store(out + target, value.to(out.dtype.element_ty), row < 36 * CHANNELS)


def fold_weights(parts: Tensor, into: Tensor, conv: Conv) -> None:
    """Sum the parts and the four places where ``spread_weights`` put each weight."""
    rows = 25 * conv.given
    _fold_weights[(triton.cdiv(rows, 32), len(parts))](
        parts,
        into,
        parts.shape[1],
        into.stride(0),
        conv.channels,
        conv.given,
        conv.outputs,
        32,
        num_warps=8,
    )


@triton.jit
def _fold_weights(
    parts,
    into,
    splits,
    stride,
    CHANNELS: tl.constexpr,
    GIVEN: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """into[lane, o, c, ky, kx] = sum of parts[lane, split, (ky + wy, kx + wx, c), (wy, wx, o)]."""
    PART: tl.constexpr = 36 * CHANNELS * 4 * OUTPUTS
    lane = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    output = tl.arange(0, OUTPUTS)[None, :]
    ky, kx, channel = row // (5 * GIVEN), row // GIVEN % 5, row % GIVEN
    inside = row < 25 * GIVEN
    source = parts + lane * splits * PART
    source += ((ky * 6 + kx) * CHANNELS + channel) * (4 * OUTPUTS) + output
    total = tl.zeros((BLOCK, OUTPUTS), tl.float32)
    for _ in range(splits):
        for window in tl.static_range(4):
            moved = (window // 2 * 6 + window % 2) * CHANNELS * 4 * OUTPUTS + window * OUTPUTS
            total += tl.load(source + moved, mask=inside, other=0)
        source += PART
    target = ((output * GIVEN + channel) * 5 + ky) * 5 + kx
    tl.store(into + lane * stride + target, total, inside)
