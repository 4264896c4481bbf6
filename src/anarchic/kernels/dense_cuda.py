"""Dense layers over lanes and the gradient of their loss, in Triton.

Offsets within a lane are 32-bit, between lanes 64-bit.
"""

# Triton is untyped, and kernels are Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
from torch import Tensor

from anarchic.errors import ConfigError
from anarchic.kernels.tiles_cuda import NO_TRITON, Precision, Tile, rounding

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    raise ConfigError(NO_TRITON) from missing


def dense(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    tile: Tile,
    precision: Precision,
    *,
    bias: Tensor | None = None,
    relu: bool = False,
    through: Tensor | None = None,
    inner: int = 1,
) -> None:
    """out = a @ b of every lane, with whatever strides.

    ``bias`` (lanes, columns) is added; ``relu`` cuts; ``through`` lets pass only where it, laid out
    as ``out``, is positive. With ``inner`` channels the columns (position, channel) are stored as
    (channel, position), torch's order of a flattened image.
    """
    lanes, rows, depth = a.shape
    columns = b.shape[2]
    grid = (triton.cdiv(rows, tile.rows), triton.cdiv(columns, tile.columns), lanes)
    _dense[grid](
        a,
        b,
        out if bias is None else bias,
        out if through is None else through,
        out,
        rows,
        columns,
        depth,
        *a.stride(),
        *b.stride(),
        0 if bias is None else bias.stride(0),
        out.stride(0),
        out.stride(1),
        tl.bfloat16 if precision == "bf16" else tl.float32,
        bias is not None,
        relu,
        through is not None,
        inner,
        tile.rows,
        tile.columns,
        tile.depth,
        rounding(precision),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


@triton.jit
def _dense(
    a,
    b,
    bias,
    through,
    out,
    rows,
    columns,
    depth,
    a_lane,
    a_row,
    a_depth,
    b_lane,
    b_depth,
    b_column,
    bias_lane,
    out_lane,
    out_row,
    FACTOR: tl.constexpr,
    BIASED: tl.constexpr,
    RELU: tl.constexpr,
    MASKED: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    ROUNDING: tl.constexpr,
):
    """a (lanes, rows, depth), b (lanes, depth, columns) -> out (lanes, rows, columns)."""
    lane = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    a += lane * a_lane
    b += lane * b_lane
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, depth, DEPTH):
        k = first + tl.arange(0, DEPTH)
        left = tl.load(
            a + row[:, None] * a_row + k[None, :] * a_depth,
            mask=(row < rows)[:, None] & (k < depth)[None, :],
            other=0,
        )
        right = tl.load(
            b + k[:, None] * b_depth + column[None, :] * b_column,
            mask=(k < depth)[:, None] & (column < columns)[None, :],
            other=0,
        )
        total = tl.dot(left.to(FACTOR), right.to(FACTOR), total, input_precision=ROUNDING)
    if BIASED:
        total += tl.load(bias + lane * bias_lane + column, column < columns, 0)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    placed = column % INNER * (columns // INNER) + column // INNER
    target = lane * out_lane + row[:, None] * out_row + placed[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    if MASKED:
        total = tl.where(tl.load(through + target, inside, 0) > 0, total, 0.0)
    tl.store(out + target, total.to(out.dtype.element_ty), inside)


def loss_gradients(outputs: Tensor, y: Tensor, dtype: torch.dtype) -> Tensor:
    """Of the mean cross-entropy, with respect to outputs (lanes, batch, classes)."""
    lanes, batch, classes = outputs.shape
    off = torch.empty_like(outputs, dtype=dtype)
    rows = lanes * batch
    _loss_gradients[(triton.cdiv(rows, 128),)](
        outputs, y.contiguous(), off, rows, batch, classes, triton.next_power_of_2(classes), 128
    )
    return off


@triton.jit
def _loss_gradients(
    outputs, y, off, rows, batch, CLASSES: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """off (rows, CLASSES) = (softmax of outputs - the label's unit vector) / batch."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < rows) & (column < CLASSES)
    value = tl.load(outputs + row * CLASSES + column, mask=inside, other=-float("inf"))
    value = tl.where(row < rows, value, 0.0)  # a row beyond the last: anything finite
    value = tl.exp(value - tl.max(value, 1)[:, None])
    share = value / tl.sum(value, 1)[:, None]
    label = tl.load(y + row, mask=row < rows, other=0)
    share = (share - tl.where(column == label, 1.0, 0.0)) / batch
    tl.store(off + row * CLASSES + column, share.to(off.dtype.element_ty), inside)
