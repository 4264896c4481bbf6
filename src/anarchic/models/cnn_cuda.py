"""Gradients of the paper's CNN for many lanes at once: Triton kernels for a GPU.

A lane has its own parameters and its own batch, so that every layer is a batch of small problems
for which libraries have no convolution. Here the two convolutions are written so that each is one
large matrix product a lane. Images lie with their channels innermost, and pooled positions, not
convolution outputs, are the rows: the four 5x5 windows under a pooled position together see a
6x6 patch, so the weights are *spread* into a (6 x 6 x channels, 4 x outputs) matrix that holds the
kernel four times, moved by zero or one, with zeros around. A third of the product is with zeros,
but every patch is read once instead of four times, and the maximum over the window stays within a
row. The same matrix, read the other way, carries the gradient back.

Beside a pooled value stands its *code*: which of the four outputs it was, or ``CUT`` where the ReLU
left nothing. Every sum has a fixed order, whatever the number of lanes: a step repeats bit for bit.
Offsets within a lane are 32-bit, between lanes 64-bit.
"""

# Triton is untyped, and kernels are Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from anarchic.core.types import Layout
from anarchic.errors import ConfigError

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    raise ConfigError(
        "The CNN's GPU kernels need Triton, which comes with torch for CUDA and was not found: "
        "install that, or compute with autograd."
    ) from missing

Precision = Literal["ieee", "tf32", "bf16"]

CONV1, CONV2, DENSE1, DENSE2 = 32, 64, 512, 128  # outputs of the layers, as in models.cnn
CUT = tl.constexpr(4)  # the code of a pooled value that the ReLU cut off


@dataclass(frozen=True)
class Tile:
    """How a kernel cuts its product: rows and depth of a block, or rows and columns."""

    rows: int
    depth: int
    warps: int = 4
    stages: int = 3
    columns: int = 64  # dense only: the convolutions take all their columns


# What a benchmark chose; see benchmarks/kernels_cnn.py.
TILES: dict[str, dict[str, Tile]] = {
    "bf16": {
        "conv1": Tile(128, 16, warps=4, stages=4),
        "conv2": Tile(128, 32, warps=8, stages=4),
        "inputs2": Tile(128, 64, warps=8, stages=2),
        "weights1": Tile(32, 256, warps=8, stages=3),
        "weights2": Tile(32, 128, warps=8, stages=4),
        "dense": Tile(128, 64, warps=4, stages=4),
    },
    "tf32": {
        "conv1": Tile(128, 32, warps=8, stages=2),
        "conv2": Tile(128, 32, warps=8, stages=3),
        "inputs2": Tile(64, 64, warps=4, stages=1),
        "weights1": Tile(32, 64, warps=4, stages=3),
        "weights2": Tile(32, 128, warps=8, stages=2),
        "dense": Tile(128, 32, warps=8, stages=3, columns=128),
    },
    "ieee": {
        "conv1": Tile(32, 16, warps=8, stages=1),
        "conv2": Tile(32, 16, warps=8, stages=1),
        "inputs2": Tile(32, 64, warps=8, stages=1),
        "weights1": Tile(16, 64, warps=8, stages=1),
        "weights2": Tile(16, 64, warps=8, stages=1),
        "dense": Tile(32, 32, warps=4, stages=1, columns=32),
    },
}
# Into how many sums the positions of a lane are cut, so that few lanes still fill a GPU.
SPLITS = {"weights1": 16, "weights2": 2}


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


@dataclass(frozen=True)
class Sizes:
    """The network that fits the inputs, and where its tensors lie in the flat vector."""

    channels: int
    size: int
    classes: int

    @staticmethod
    def of(dim: int, channels: int, height: int, width: int) -> Sizes:
        """From the length of the vector, which tells the number of classes."""
        classes, over = divmod(dim - Sizes(channels, height, 0).layout.dim, DENSE2 + 1)
        if height != width or height < 16 or over or classes < 1:
            raise ConfigError(
                f"No cnn for {channels} channels of {height}x{width} has {dim} parameters: images "
                "must be square, 16x16 or more, and the vector that of models.cnn for them."
            )
        return Sizes(channels, height, classes)

    @cached_property
    def conv1(self) -> Conv:
        return Conv(self.size, -(-self.channels // 4) * 4, self.channels, CONV1)

    @cached_property
    def conv2(self) -> Conv:
        return Conv(self.conv1.pooled, CONV1, CONV1, CONV2)

    @property
    def left(self) -> int:
        """Positions that remain after the second pooling."""
        return self.conv2.pooled**2

    @cached_property
    def layout(self) -> Layout:
        shapes = {
            "conv1": (CONV1, self.channels, 5, 5),
            "conv2": (CONV2, CONV1, 5, 5),
            "dense1": (DENSE1, CONV2 * self.left),
            "dense2": (DENSE2, DENSE1),
            "dense3": (self.classes, DENSE2),
        }
        tensors = {f"{name}.weight": (shape, "F32") for name, shape in shapes.items()}
        return Layout.of(tensors | {f"{n}.bias": ((s[0],), "F32") for n, s in shapes.items()})

    def part(self, matrix: Tensor, name: str) -> Tensor:
        """The columns of one tensor in a (lanes, dim) matrix, as a view."""
        return matrix[:, self.layout.slices[name]]


def lane_gradients(params: Tensor, x: Tensor, y: Tensor, *, precision: Precision) -> Tensor:
    """Gradients of the mean cross-entropy: (lanes, dim), float32.

    ``params`` is (lanes, dim) float32 with contiguous rows, ``x`` (lanes, batch, channels, size,
    size) and ``y`` (lanes, batch). With "bf16" activations and factors are bfloat16; with "tf32"
    and "ieee" they are float32, multiplied so. Sums are float32 in all three.
    """
    if precision not in TILES:
        raise ConfigError(f"There is no precision {precision!r}; there are {', '.join(TILES)}.")
    step = Step(Sizes.of(params.shape[1], *x.shape[2:]), precision, params)
    return step.gradients(x, y)


class Step:
    """One gradient of every lane: the layers forward, then back, each a kernel or two."""

    def __init__(self, sizes: Sizes, precision: Precision, params: Tensor) -> None:
        self.sizes, self.precision, self.params = sizes, precision, params
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.tiles = TILES[precision]
        self.out = torch.empty_like(params, memory_format=torch.contiguous_format)

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        one, two = self.sizes.conv1, self.sizes.conv2
        images = pack_images(x, one, self.dtype)
        spread1, spread2 = self.spread("conv1", one), self.spread("conv2", two)
        seen1, code1 = self.convolve(images, spread1, "conv1", one)
        seen2, code2 = self.convolve(seen1, spread2, "conv2", two)
        back2 = self.dense_layers(seen2.flatten(2), y).view_as(seen2)
        self.weights(seen1, back2, code2, "conv2", two)
        back1 = input_gradients(back2, code2, spread2, two, self.tiles["inputs2"], self.precision)
        self.weights(images, back1, code1, "conv1", one)
        return self.out

    def dense_layers(self, seen: Tensor, y: Tensor) -> Tensor:
        """The three dense layers and the loss: the gradient of what they saw, (y, x, c) inside."""
        sizes, part = self.sizes, self.sizes.part
        first = part(self.params, "dense1.weight").unflatten(1, (DENSE1, CONV2, sizes.left))
        first = first.transpose(2, 3).to(self.dtype, memory_format=torch.contiguous_format)
        w1 = first.flatten(2)
        w2 = part(self.params, "dense2.weight").unflatten(1, (DENSE2, DENSE1))
        w3 = part(self.params, "dense3.weight").unflatten(1, (sizes.classes, DENSE2))
        hidden1 = self.product(seen, w1.mT, bias="dense1.bias")
        hidden2 = self.product(hidden1, w2.mT, bias="dense2.bias")
        outputs = self.product(hidden2, w3.mT, bias="dense3.bias", relu=False)
        off3 = loss_gradients(outputs, y, self.dtype)
        off2 = self.product(off3, w3, through=hidden2)
        off1 = self.product(off2, w2, through=hidden1)
        for name, off, inputs in (
            ("dense3", off3, hidden2),
            ("dense2", off2, hidden1),
            ("dense1", off1, seen),
        ):
            torch.sum(off, 1, dtype=torch.float32, out=part(self.out, f"{name}.bias"))
            into = part(self.out, f"{name}.weight").unflatten(1, (off.shape[2], -1))
            inner = CONV2 if name == "dense1" else 1
            dense(off.mT, inputs, into, self.tiles["dense"], self.precision, inner=inner)
        return self.product(off1, w1)

    def product(
        self,
        a: Tensor,
        b: Tensor,
        *,
        bias: str = "",
        relu: bool = True,
        through: Tensor | None = None,
    ) -> Tensor:
        """a @ b of every lane, with a bias and a ReLU, or back through the ReLU of ``through``."""
        last = bool(bias) and not relu
        dtype = torch.float32 if last else self.dtype
        out = a.new_empty((*a.shape[:2], b.shape[2]), dtype=dtype)
        added = self.sizes.part(self.params, bias) if bias else None
        dense(
            a,
            b,
            out,
            self.tiles["dense"],
            self.precision,
            bias=added,
            relu=relu and bool(bias),
            through=through,
        )
        return out

    def spread(self, name: str, conv: Conv) -> Tensor:
        return spread_weights(self.sizes.part(self.params, f"{name}.weight"), conv, self.dtype)

    def convolve(
        self, images: Tensor, spread: Tensor, name: str, conv: Conv
    ) -> tuple[Tensor, Tensor]:
        bias = self.sizes.part(self.params, f"{name}.bias")
        return conv_pool(images, spread, bias, conv, self.tiles[name], self.precision)

    def weights(self, images: Tensor, back: Tensor, code: Tensor, name: str, conv: Conv) -> None:
        kernel = f"weights{name[-1]}"
        parts, bias = weight_gradients(
            images, back, code, conv, self.tiles[kernel], self.precision, SPLITS[kernel]
        )
        torch.sum(bias, 1, out=self.sizes.part(self.out, f"{name}.bias"))
        fold_weights(parts, self.sizes.part(self.out, f"{name}.weight"), conv)


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
        _rounding(precision),
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
        _rounding(precision),
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
    images: Tensor,
    back: Tensor,
    code: Tensor,
    conv: Conv,
    tile: Tile,
    precision: Precision,
    splits: int,
) -> tuple[Tensor, Tensor]:
    """Partial sums over positions of the gradients of the spread weights and of the bias.

    (lanes, splits, 6 * 6 * channels, 4 * outputs) and (lanes, splits, outputs), float32.
    """
    lanes, batch = back.shape[:2]
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
        _rounding(precision),
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
        _rounding(precision),
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


def _rounding(precision: Precision) -> Any:
    return "tf32" if precision == "tf32" else "ieee"
