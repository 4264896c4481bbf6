"""MNIST and Fashion-MNIST: 60,000 training and 10,000 test images, 28x28, ten classes.

MNIST: LeCun, Cortes, Burges, "The MNIST database of handwritten digits".
Fashion-MNIST: Xiao, Rasul, Vollgraf, arXiv:1708.07747; MIT licence.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from anarchic.data.dataset import Dataset
from anarchic.data.files import damaged, find
from anarchic.data.idx import read_idx

_CLASSES = 10


def load_mnist(data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """MNIST with the usual normalisation, ``(x / 255 - 0.1307) / 0.3081``."""
    return _load("mnist", data_dir, mean=0.1307, std=0.3081)


def load_fashion_mnist(data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Fashion-MNIST, normalised with its own mean and deviation, 0.2860 and 0.3530."""
    return _load("fashion-mnist", data_dir, mean=0.2860, std=0.3530)


def _load(
    name: str, data_dir: str | os.PathLike[str] | None, *, mean: float, std: float
) -> Dataset:
    return Dataset(
        name,
        x_train=_normalised(_images(name, "train", data_dir), mean, std),
        y_train=_labels(name, "train", data_dir),
        x_test=_normalised(_images(name, "t10k", data_dir), mean, std),
        y_test=_labels(name, "t10k", data_dir),
        classes=_CLASSES,
    )


def _images(name: str, part: str, data_dir: str | os.PathLike[str] | None) -> NDArray[np.uint8]:
    path = find(name, f"{part}-images-idx3-ubyte", data_dir)
    pixels = read_idx(path, dimensions=3)
    if pixels.shape[1:] != (28, 28):
        raise damaged(path, f"its images are {pixels.shape[1]} x {pixels.shape[2]}, not 28 x 28")
    return pixels


def _normalised(pixels: NDArray[np.uint8], mean: float, std: float) -> NDArray[np.float32]:
    """``(x / 255 - mean) / std`` with a channel axis, in place: a float64 copy would be 376 MB."""
    x = pixels[:, np.newaxis].astype(np.float32)
    x *= np.float32(1 / (255 * std))
    x -= np.float32(mean / std)
    return x


def _labels(name: str, part: str, data_dir: str | os.PathLike[str] | None) -> NDArray[np.int64]:
    path = find(name, f"{part}-labels-idx1-ubyte", data_dir)
    labels = read_idx(path, dimensions=1)
    if labels.max(initial=0) >= _CLASSES:
        raise damaged(path, f"it has the label {labels.max()}, where 0 to 9 are expected")
    return labels.astype(np.int64)
