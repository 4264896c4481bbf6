"""Augmentation of images where they lie, with crops and flips that the lane has drawn."""

from __future__ import annotations

import torch

PAD = 4  # zeros on every side before the crop


def pick_crops(bits: torch.Tensor) -> torch.Tensor:
    """(..., 3 * batch) random 32-bit words as (..., batch, 3): row, column, flip."""
    ways = torch.tensor([2 * PAD + 1, 2 * PAD + 1, 2], device=bits.device)
    words = bits.reshape(*bits.shape[:-1], -1, 3)
    return (words * ways) >> 32


def padded(images: torch.Tensor) -> torch.Tensor:
    """(samples, channels, height, width) with a border of ``PAD`` zeros."""
    return torch.nn.functional.pad(images, (PAD, PAD, PAD, PAD))


def crop_and_flip(
    padded_images: torch.Tensor, index: torch.Tensor, crops: torch.Tensor
) -> torch.Tensor:
    """For every sample of ``index`` its crop, mirrored if so drawn, in one gather."""
    height, width = (size - 2 * PAD for size in padded_images.shape[-2:])
    along = torch.arange(max(height, width), device=index.device)
    rows = crops[:, 0, None] + along[:height]
    columns = torch.where(crops[:, 2, None] == 1, width - 1 - along[:width], along[:width])
    columns = crops[:, 1, None] + columns
    channels = torch.arange(padded_images.shape[1], device=index.device)
    return padded_images[
        index[:, None, None, None],
        channels[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
