"""Crops and flips by one Triton kernel, which also rounds to what the model computes in.

Torch's gather first writes float32 and builds an index for every number; here a number is read
once, where it lies in the resident data set, and written once.
"""

# Triton is untyped, and kernels are Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
from torch import Tensor

from anarchic.errors import ConfigError

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    raise ConfigError(
        "Crops on a GPU need Triton, which comes with torch for CUDA and was not found: install "
        "that, or use torch_data.crop_and_flip."
    ) from missing

BLOCK = 1024


def crop_and_flip(
    padded_images: Tensor, index: Tensor, crops: Tensor, dtype: torch.dtype, pad: int
) -> Tensor:
    """For every sample of ``index`` its crop, mirrored if so drawn: (samples, channels, y, x).

    The images have a border of ``pad`` zeros on every side.
    """
    padded_images, count = padded_images.contiguous(), len(index)
    channels, high, wide = padded_images.shape[1:]
    height, width = high - 2 * pad, wide - 2 * pad
    out = padded_images.new_empty((count, channels, height, width), dtype=dtype)
    _crop_and_flip[(count, triton.cdiv(channels * height * width, BLOCK))](
        padded_images,
        index.contiguous(),
        crops.contiguous(),
        out,
        channels,
        height,
        width,
        2 * pad,
        BLOCK,
    )
    return out


@triton.jit
def _crop_and_flip(
    images,
    index,
    crops,
    out,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BORDERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """images (samples, CHANNELS, HEIGHT + BORDERS, WIDTH + BORDERS), index (count,), crops
    (count, 3): row, column, flip -> out (count, CHANNELS, HEIGHT, WIDTH)."""
    PLANE: tl.constexpr = (HEIGHT + BORDERS) * (WIDTH + BORDERS)
    NUMBERS: tl.constexpr = CHANNELS * HEIGHT * WIDTH
    sample = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channel, y, x = number // (HEIGHT * WIDTH), number // WIDTH % HEIGHT, number % WIDTH
    image = images + tl.load(index + sample).to(tl.int64) * (CHANNELS * PLANE)
    top, left = tl.load(crops + 3 * sample), tl.load(crops + 3 * sample + 1)
    x = tl.where(tl.load(crops + 3 * sample + 2) == 1, WIDTH - 1 - x, x)
    source = channel * PLANE + (top + y) * (WIDTH + BORDERS) + left + x
    value = tl.load(image + source, mask=number < NUMBERS, other=0)
    tl.store(out + sample * NUMBERS + number, value.to(out.dtype.element_ty), number < NUMBERS)
