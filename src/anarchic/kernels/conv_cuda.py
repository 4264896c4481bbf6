"""A 5x5 convolution with ReLU and 2x2 pooling over lanes, and its gradients, in Triton.

Libraries have no convolution for many lanes, each with weights of its own. Here one is a large
matrix product per lane. Images lie with their channels innermost, and pooled positions, not
convolution outputs, are the rows: the four 5x5 windows under a pooled position together see a
6x6 patch, so the weights are *spread* into a (6 x 6 x channels, 4 x outputs) matrix that holds the
kernel four times, moved by zero or one, with zeros around. A third of the product is with zeros,
but every patch is read once instead of four times, and the maximum over the window stays within a
row. The same matrix, read the other way, carries the gradient back.

Beside a pooled value stands its *code*: which of the four outputs it was, or ``CUT`` where the ReLU
left nothing. Offsets within a lane are 32-bit, between lanes 64-bit.
"""

# Triton is untyped, and kernels are Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
from torch import Tensor

from anarchic.errors import ConfigError
from anarchic.kernels.conv_pack_cuda import Conv
from anarchic.kernels.tiles_cuda import NO_TRITON, Precision, Tile, rounding

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    raise ConfigError(NO_TRITON) from missing

CUT = tl.constexpr(4)  # the code of a pooled value that the ReLU cut off


def conv_pool(
    images: Tensor, spread: Tensor, bias: Tensor, conv: Conv, tile: Tile, precision: Precision
) -> tuple[Tensor, Tensor]:
    """Convolution, bias, ReLU and pooling: values and codes, (lanes, batch, y, x, outputs)."""
    lanes, batch = images.shape[:2]
    out = images.new_empty((lanes, batch, conv.pooled, conv.pooled, conv.outputs))
    code = torch.empty_like(out, dtype=torch.uint8)
    positions = batch * conv.pooled**2
    _conv_pool[(triton.cdiv(positions, tile.rows), lanes)](
        images,
        spread,
        bias,
        out,
        code,
        positions,
        images.stride(0),
        bias.stride(0),
        conv.size,
        conv.pooled,
        conv.channels,
        conv.outputs,
        tile.rows,
        tile.depth,
        rounding(precision),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out, code


@triton.jit
def _corners(position, SIZE: tl.constexpr, POOLED: tl.constexpr, CHANNELS: tl.constexpr):
    """Where the patch under each pooled position begins, in (batch, SIZE, SIZE, CHANNELS)."""
    image, y, x = position // (POOLED * POOLED), position // POOLED % POOLED, position % POOLED
    return (image * SIZE + 2 * y) * (SIZE * CHANNELS) + x * (2 * CHANNELS)


@triton.jit
def _conv_pool(
    images,
    spread,
    bias,
    out,
    code,
    positions,
    image_stride,
    bias_stride,
    SIZE: tl.constexpr,
    POOLED: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    ROUNDING: tl.constexpr,
):
    """images (lanes, batch, SIZE, SIZE, CHANNELS), spread (lanes, 36 CHANNELS, 4 OUTPUTS)
    -> out, code (lanes, positions, OUTPUTS). One program: ROWS positions of a lane."""
    lane = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    patch = images + lane * image_stride
    patch += _corners(tl.minimum(position, positions - 1), SIZE, POOLED, CHANNELS)[:, None]
    column = tl.arange(0, 4 * OUTPUTS)[None, :]
    spread += lane * (36 * CHANNELS * 4 * OUTPUTS)
    total = tl.zeros((ROWS, 4 * OUTPUTS), tl.float32)
    for first in range(0, 36 * CHANNELS, DEPTH):
        k = first + tl.arange(0, DEPTH)
        at = k // (6 * CHANNELS) * (SIZE * CHANNELS) + k % (6 * CHANNELS)
        a = tl.load(patch + at[None, :], mask=(k < 36 * CHANNELS)[None, :], other=0)
        b = tl.load(
            spread + k[:, None] * (4 * OUTPUTS) + column,
            mask=(k < 36 * CHANNELS)[:, None],
            other=0,
        )
        total = tl.dot(a, b, total, input_precision=ROUNDING)
    best, which = tl.max(tl.reshape(total, (ROWS, 4, OUTPUTS)), axis=1, return_indices=True)
    output = tl.arange(0, OUTPUTS)[None, :]
    best += tl.load(bias + lane * bias_stride + output)
    inside = position[:, None] < positions
    target = lane * positions * OUTPUTS + position[:, None] * OUTPUTS + output
    tl.store(out + target, tl.maximum(best, 0.0).to(out.dtype.element_ty), inside)
    tl.store(code + target, tl.where(best > 0, which, CUT).to(tl.uint8), inside)


def input_gradients(
    back: Tensor, code: Tensor, spread: Tensor, conv: Conv, tile: Tile, precision: Precision
) -> Tensor:
    """From the gradient of the pooled values that of the images: (lanes, batch, y, x, channels)."""
    lanes, batch = back.shape[:2]
    out = back.new_empty((lanes, batch, conv.size, conv.size, conv.channels))
    squares = batch * ((conv.size + 1) // 2) ** 2
    _input_gradients[(triton.cdiv(squares, tile.rows), lanes)](
        back,
        code,
        spread,
        out,
        squares,
        back.stride(0),
        out.stride(0),
        conv.size,
        conv.pooled,
        conv.channels,
        conv.outputs,
        tile.rows,
        rounding(precision),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


@triton.jit
def _input_gradients(
    back,
    code,
    spread,
    out,
    squares,
    back_stride,
    out_stride,
    SIZE: tl.constexpr,
    POOLED: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    ROUNDING: tl.constexpr,
):
    """back, code (lanes, batch, POOLED, POOLED, OUTPUTS), spread (lanes, 36 CHANNELS, 4 OUTPUTS)
    -> out (lanes, batch, SIZE, SIZE, CHANNELS).

    One program: ROWS squares of 2x2 input positions. A square lies in the patches of the 3x3
    pooled positions up and to the left of it; there it is rows 2 dy, 2 dy + 1 and columns 2 dx,
    2 dx + 1.
    """
    SIDE: tl.constexpr = (SIZE + 1) // 2
    lane = tl.program_id(1).to(tl.int64)
    square = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    image, y, x = square // (SIDE * SIDE), square // SIDE % SIDE, square % SIDE
    back += lane * back_stride
    code += lane * back_stride
    spread += lane * (36 * CHANNELS * 4 * OUTPUTS)
    output = tl.arange(0, OUTPUTS)[None, :]
    column = tl.arange(0, 4 * CHANNELS)
    ry, rx, channel = column // (2 * CHANNELS), column // CHANNELS % 2, column % CHANNELS
    row = ((ry * 6 + rx) * CHANNELS + channel) * (4 * OUTPUTS)  # of spread, at dy = dx = 0
    total = tl.zeros((ROWS, 4 * CHANNELS), tl.float32)
    for d in range(9):
        py, px = y - d // 3, x - d % 3
        inside = (py >= 0) & (py < POOLED) & (px >= 0) & (px < POOLED) & (square < squares)
        at = ((image * POOLED + py) * POOLED + px)[:, None] * OUTPUTS + output
        value = tl.load(back + at, mask=inside[:, None], other=0)
        which = tl.load(code + at, mask=inside[:, None], other=CUT)
        moved = spread + (d // 3 * 12 + d % 3 * 2) * (CHANNELS * 4 * OUTPUTS)
        for window in tl.static_range(4):
            a = tl.where(which == window, value, 0.0).to(value.dtype)
            b = tl.load(moved + row[:, None] + window * OUTPUTS + output)
            total = tl.dot(a, tl.trans(b), total, input_precision=ROUNDING)
    below, right = 2 * y[:, None] + ry[None, :], 2 * x[:, None] + rx[None, :]
    target = ((image[:, None] * SIZE + below) * SIZE + right) * CHANNELS + channel[None, :]
    keep = (below < SIZE) & (right < SIZE) & (square < squares)[:, None]
    tl.store(out + lane * out_stride + target, total.to(out.dtype.element_ty), keep)


def weight_gradients(
    images: Tensor, back: Tensor, code: Tensor, conv: Conv, tile: Tile, precision: Precision
) -> tuple[Tensor, Tensor]:
    """Partial sums over positions of the gradients of the spread weights and of the bias.

    (lanes, splits, 6 * 6 * channels, 4 * outputs) and (lanes, splits, outputs), float32.
    """
    lanes, batch, splits = *back.shape[:2], tile.splits
    positions = batch * conv.pooled**2
    parts = torch.empty(
        (lanes, splits, conv.depth, 4 * conv.outputs), dtype=torch.float32, device=back.device
    )
    bias = parts.new_empty((lanes, splits, conv.outputs))
    _weight_gradients[(triton.cdiv(conv.depth, tile.depth), splits, lanes)](
        images,
        back,
        code,
        parts,
        bias,
        positions,
        triton.cdiv(triton.cdiv(positions, splits), tile.rows),
        images.stride(0),
        back.stride(0),
        conv.size,
        conv.pooled,
        conv.channels,
        conv.outputs,
        tile.rows,
        tile.depth,
        rounding(precision),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return parts, bias


@triton.jit
def _weight_gradients(
    images,
    back,
    code,
    parts,
    bias,
    positions,
    blocks,
    image_stride,
    back_stride,
    SIZE: tl.constexpr,
    POOLED: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    ROUNDING: tl.constexpr,
):
    """images (lanes, batch, SIZE, SIZE, CHANNELS), back, code (lanes, positions, OUTPUTS)
    -> parts (lanes, splits, 36 CHANNELS, 4 OUTPUTS), bias (lanes, splits, OUTPUTS).

    One program: DEPTH rows of a part, summed over ``blocks`` blocks of ROWS positions.
    """
    lane = tl.program_id(2).to(tl.int64)
    split = tl.program_id(1)
    part = lane * tl.num_programs(1) + split
    k = tl.program_id(0) * DEPTH + tl.arange(0, DEPTH)
    at = k // (6 * CHANNELS) * (SIZE * CHANNELS) + k % (6 * CHANNELS)
    output = tl.arange(0, OUTPUTS)[None, :]
    window = tl.arange(0, 4).to(tl.uint8)[None, :, None]
    images += lane * image_stride
    back += lane * back_stride
    code += lane * back_stride
    total = tl.zeros((DEPTH, 4 * OUTPUTS), tl.float32)
    onto_bias = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for block in range(split * blocks, (split + 1) * blocks):
        position = block * ROWS + tl.arange(0, ROWS)
        corner = _corners(tl.minimum(position, positions - 1), SIZE, POOLED, CHANNELS)
        a = tl.load(
            images + corner[:, None] + at[None, :], mask=(k < 36 * CHANNELS)[None, :], other=0
        )
        inside = position[:, None] < positions
        value = tl.load(back + position[:, None] * OUTPUTS + output, mask=inside, other=0)
        which = tl.load(code + position[:, None] * OUTPUTS + output, mask=inside, other=CUT)
        onto_bias += tl.where(which < CUT, value, 0.0).to(tl.float32)
        apart = tl.where(which[:, None, :] == window, value[:, None, :], 0.0).to(value.dtype)
        b = tl.reshape(apart, (ROWS, 4 * OUTPUTS))
        total = tl.dot(tl.trans(a), b, total, input_precision=ROUNDING)
    column = tl.arange(0, 4 * OUTPUTS)[None, :]
    target = part * (36 * CHANNELS * 4 * OUTPUTS) + k[:, None] * (4 * OUTPUTS) + column
    tl.store(parts + target, total, mask=(k < 36 * CHANNELS)[:, None])
    if tl.program_id(0) == 0:
        tl.store(bias + part * OUTPUTS + tl.arange(0, OUTPUTS), tl.sum(onto_bias, 0))
