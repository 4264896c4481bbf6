"""MNIST and Fashion-MNIST: 60,000 training and 10,000 test images, 28x28, ten classes.

MNIST: LeCun, Cortes, Burges, "The MNIST database of handwritten digits".
Fashion-MNIST: Xiao, Rasul, Vollgraf, arXiv:1708.07747; MIT licence.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anarchic.data.dataset import Dataset, Folder
from anarchic.data.files import damaged, find, read

_CLASSES = 10


def load_mnist(data_dir: Folder = None) -> Dataset:
    """MNIST with the usual normalisation, ``(x / 255 - 0.1307) / 0.3081``."""
    return _load("mnist", data_dir, mean=0.1307, std=0.3081)


def load_fashion_mnist(data_dir: Folder = None) -> Dataset:
    """Fashion-MNIST, normalised with its own mean and deviation, 0.2860 and 0.3530."""
    return _load("fashion-mnist", data_dir, mean=0.2860, std=0.3530)


def _load(name: str, data_dir: Folder, *, mean: float, std: float) -> Dataset:
    return Dataset(
        name,
        x_train=_normalised(_images(name, "train", data_dir), mean, std),
        y_train=_labels(name, "train", data_dir),
        x_test=_normalised(_images(name, "t10k", data_dir), mean, std),
        y_test=_labels(name, "t10k", data_dir),
        classes=_CLASSES,
    )


def _images(name: str, part: str, data_dir: Folder) -> NDArray[np.uint8]:
    path = find(name, f"{part}-images-idx3-ubyte", data_dir)
    pixels = _read_idx(path, dimensions=3)
    if pixels.shape[1:] != (28, 28):
        raise damaged(path, f"its images are {pixels.shape[1]} x {pixels.shape[2]}, not 28 x 28")
    return pixels


def _normalised(pixels: NDArray[np.uint8], mean: float, std: float) -> NDArray[np.float32]:
    """``(x / 255 - mean) / std`` with a channel axis, in place: a float64 copy would be 376 MB."""
    x = pixels[:, np.newaxis].astype(np.float32)
    x *= np.float32(1 / (255 * std))
    x -= np.float32(mean / std)
    return x


def _labels(name: str, part: str, data_dir: Folder) -> NDArray[np.int64]:
    path = find(name, f"{part}-labels-idx1-ubyte", data_dir)
    labels = _read_idx(path, dimensions=1)
    if labels.max(initial=0) >= _CLASSES:
        raise damaged(path, f"it has the label {labels.max()}, where 0 to 9 are expected")
    return labels.astype(np.int64)


def _read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes with the given number of dimensions.

    A big-endian header: two zero bytes, the type of the numbers (8: unsigned bytes), the number of
    dimensions, the size of each dimension as an int32; then the numbers.
    """
    content = read(path)
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        raise damaged(path, f"its first bytes are {content[:4].hex(' ') or 'none'}")
    shape = struct.unpack(f">{dimensions}i", content[4:start])
    if len(content) - start != math.prod(shape) or min(shape) < 0:
        sizes = " x ".join(map(str, shape))
        raise damaged(path, f"it announces {sizes} bytes and holds {len(content) - start:,}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
