"""A data set as tensors on the device where it is used; images may be cropped and flipped."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
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


class OnDisk:
    """A memory-mapped array, of which only the rows that are asked for are read."""

    def __init__(self, array: NDArray[Any], device: torch.device, dtype: torch.dtype) -> None:
        whole = array.dtype.kind != "f"
        self.array, self.device = array, device
        self.dtype = np.dtype(np.int64 if whole else str(dtype).removeprefix("torch."))
        self.index: NDArray[np.int64] | None = None  # the rows of the array that count; None: all

    def __len__(self) -> int:
        return len(self.array if self.index is None else self.index)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        index = rows if isinstance(rows, slice) else rows.cpu().numpy()
        index = index if self.index is None else self.index[index]
        return torch.from_numpy(np.array(self.array[index], self.dtype)).to(self.device)

    def only(self, index: Tensor) -> OnDisk:
        """Some rows of the whole array, still on disk."""
        some = copy(self)
        some.index = index.cpu().numpy()
        return some


Rows = Tensor | OnDisk


@dataclass(frozen=True, eq=False)
class TorchData:
    """Training and held-out samples; with ``crops``, images that batches crop and flip."""

    x: Rows  # with a border, where they are cropped and not on disk
    y: Rows
    held_out: Mapping[str, tuple[Rows, Rows]]  # "" the test samples, "val_" those of validation
    crops: bool

    @staticmethod
    def of(data: Dataset, device: torch.device, dtype: torch.dtype, crops: bool) -> TorchData:
        """Shared by all tasks on the data set."""

        def make() -> TorchData:
            x, y = _inputs(data.x_train, device, dtype), _targets(data.y_train, device, dtype)
            parts = {"": (data.x_test, data.y_test), "val_": (data.x_val, data.y_val)}
            held_out = {
                name: (_inputs(one, device, dtype), _targets(other, device, dtype))
                for name, (one, other) in parts.items()
                if one is not None and other is not None
            }
            x = padded(x) if crops and isinstance(x, Tensor) else x
            return TorchData(x, y, held_out, crops)

        return resident(data, (device, dtype, crops), make)

    @property
    def on_disk(self) -> bool:
        return isinstance(self.x, OnDisk) or isinstance(self.y, OnDisk)

    def batch(self, picks: Picks) -> tuple[Tensor, Tensor]:
        """Inputs (lanes, batch, ...) and targets (lanes, batch, ...) of samples (lanes, batch)."""
        sample = picks["sample"]
        flat = sample.reshape(-1)
        x, y = self._chosen(flat, picks), _rows(self.y, flat)
        return x.view(*sample.shape, *x.shape[1:]), y.view(*sample.shape, *y.shape[1:])

    def _chosen(self, flat: Tensor, picks: Picks) -> Tensor:
        if not self.crops:
            return _rows(self.x, flat)
        crops = picks["crop"].reshape(-1, 3)
        if isinstance(self.x, Tensor):
            return self._cropped(self.x, flat, crops)
        return self._cropped(
            padded(self.x[flat]), torch.arange(len(flat), device=flat.device), crops
        )

    def _cropped(self, images: Tensor, index: Tensor, crops: Tensor) -> Tensor:
        by_kernel = find("crop_and_flip_cuda") if images.is_cuda else None
        if by_kernel is None:
            return crop_and_flip(images, index, crops)
        found: Tensor = by_kernel(images, index, crops, images.dtype, PAD)
        return found

    def seen(self, index: Tensor, some: slice) -> tuple[Tensor, Tensor]:
        """Targets and some inputs of the samples of all workers, to tell data sets apart."""
        whole = slice(None) if isinstance(self.y, Tensor) else some
        return self.y[index[whole]], self.x[index[some]]

    def extremes(self) -> tuple[Tensor, Tensor]:
        """Two samples as a module gets them: with the least and the greatest label, if any."""
        rows = torch.arange(min(2, len(self.y)))
        if isinstance(self.y, Tensor) and not self.y.is_floating_point():
            per_sample = self.y.numel() // len(self.y)  # more than one in a sequence
            rows = torch.stack([self.y.argmin(), self.y.argmax()]) // per_sample
        x, y = self.samples(rows)
        return x[:], y[:]

    def samples(self, index: Tensor) -> tuple[Rows, Rows]:
        """Inputs and targets of some training samples, as they are; from disk not yet read."""
        x = self.x[index] if isinstance(self.x, Tensor) else self.x.only(index)
        y = self.y[index] if isinstance(self.y, Tensor) else self.y.only(index)
        if self.crops and isinstance(x, Tensor):
            x = x[..., PAD:-PAD, PAD:-PAD]
        return x, y


def _rows(array: Rows, index: Tensor) -> Tensor:
    return array.index_select(0, index) if isinstance(array, Tensor) else array[index]


def _inputs(x: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Rows:
    if isinstance(x, np.memmap):
        return OnDisk(x, device, dtype)
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    return tensor.to(device, dtype if tensor.is_floating_point() else None)


def _targets(y: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Rows:
    if isinstance(y, np.memmap):
        return OnDisk(y, device, dtype)
    if y.dtype.kind == "f":
        return torch.from_numpy(np.ascontiguousarray(y)).to(device, dtype)
    return torch.from_numpy(np.ascontiguousarray(y, dtype=np.int64)).to(device)
