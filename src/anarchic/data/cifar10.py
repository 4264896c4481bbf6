"""CIFAR-10, binary version: 50,000 training and 10,000 test images, 3x32x32, ten classes.

A record is one label byte, then the red, green and blue planes, 1,024 bytes each.
Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anarchic.data.dataset import Dataset, Folder
from anarchic.data.files import damaged, find, read

_CLASSES = 10
_BATCH = 10_000
_PIXELS = 3 * 32 * 32
_MEAN = (125.306918046875, 122.950394140625, 113.86538318359375)  # of the training images, of 255
_STD = (62.9932, 62.0887, 66.7049)


def load_cifar10(data_dir: Folder = None) -> Dataset:
    """CIFAR-10, each channel normalised by its mean and standard deviation over training images.

    ``augment`` is set: training pads by 4, crops at random and mirrors, testing does not.
    """
    from concurrent.futures import ThreadPoolExecutor

    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    paths = [find("cifar10", name, data_dir) for name in names]
    # In parallel: to decompress xz takes two seconds each and releases the GIL.
    with ThreadPoolExecutor(min(len(paths), os.cpu_count() or 1)) as pool:
        batches = list(pool.map(lambda path: read_records(path, _BATCH, (_CLASSES,)), paths))
    x_train = np.empty((5 * _BATCH, 3, 32, 32), np.float32)
    x_test = np.empty((_BATCH, 3, 32, 32), np.float32)
    for number, batch in enumerate(batches[:5]):
        normalise(batch[:, 1:], x_train[number * _BATCH : (number + 1) * _BATCH], _MEAN, _STD)
    normalise(batches[5][:, 1:], x_test, _MEAN, _STD)
    return Dataset(
        "cifar10",
        x_train,
        np.concatenate([batch[:, 0] for batch in batches[:5]]).astype(np.int64),
        x_test,
        batches[5][:, 0].astype(np.int64),
        classes=_CLASSES,
        augment="crop-flip",
    )


def read_records(path: Path, images: int, classes: tuple[int, ...]) -> NDArray[np.uint8]:
    """(images, labels + pixels) bytes; each label byte has its number of classes."""
    content, size = read(path), len(classes) + _PIXELS
    if len(content) != images * size:
        raise damaged(path, f"it holds {len(content):,} bytes, not {images * size:,}")
    records = np.frombuffer(content, np.uint8).reshape(images, size)
    for place, known in enumerate(classes):
        if (most := records[:, place].max()) >= known:
            raise damaged(path, f"it has the label {most}, where 0 to {known - 1} are expected")
    return records


def normalise(
    pixels: NDArray[np.uint8],
    out: NDArray[np.float32],
    means: tuple[float, ...],
    deviations: tuple[float, ...],
) -> None:
    """Write ``(x - mean) / std`` of each channel to ``out`` without a copy."""
    mean, std = (np.array(each, np.float32).reshape(3, 1, 1) for each in (means, deviations))
    out[:] = pixels.reshape(-1, 3, 32, 32)
    out -= mean
    out /= std
