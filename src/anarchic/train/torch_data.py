"""A data set as tensors on the device where it is used; images may be cropped and flipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anarchic.data.dataset import Dataset
from anarchic.kernels import find
from anarchic.train.samples import resident
from anarchic.train.task import Picks

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


@dataclass(frozen=True, eq=False)
class TorchData:
    """Training and test samples; with ``crops``, images that batches crop and flip."""

    x: Tensor  # with a border, where they are cropped
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    crops: bool

    @staticmethod
    def of(data: Dataset, device: torch.device, dtype: torch.dtype, crops: bool) -> TorchData:
        """Shared by all tasks on the data set."""

        def make() -> TorchData:
            x, x_test = (_inputs(each, device, dtype) for each in (data.x_train, data.x_test))
            y, y_test = (_labels(each, device) for each in (data.y_train, data.y_test))
            return TorchData(padded(x) if crops else x, y, x_test, y_test, crops)

        return resident(data, (device, dtype, crops), make)

    def batch(self, picks: Picks) -> tuple[Tensor, Tensor]:
        """Inputs (lanes, batch, ...) and labels (lanes, batch) of samples (lanes, batch)."""
        sample = picks["sample"]
        flat = sample.reshape(-1)
        if self.crops:
            x = self._cropped(flat, picks["crop"].reshape(-1, 3))
        else:
            x = self.x.index_select(0, flat)
        return x.view(*sample.shape, *x.shape[1:]), self.y.index_select(0, flat).view(sample.shape)

    def _cropped(self, index: Tensor, crops: Tensor) -> Tensor:
        by_kernel = find("crop_and_flip_cuda") if self.x.is_cuda else None
        if by_kernel is None:
            return crop_and_flip(self.x, index, crops)
        found: Tensor = by_kernel(self.x, index, crops, self.x.dtype, PAD)
        return found


def _inputs(x: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    return tensor.to(device, dtype if tensor.is_floating_point() else None)


def _labels(y: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(y, dtype=np.int64)).to(device)
