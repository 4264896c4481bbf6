"""CIFAR-100, binary version: 50,000 training and 10,000 test images, 3x32x32, a hundred classes.

A record is the coarse label (20 of them), the fine label, then the red, green and blue planes.
Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from anarchic.core.validation import check_choice
from anarchic.data.cifar10 import normalise, read_records
from anarchic.data.dataset import Dataset, Folder
from anarchic.data.files import find, locate, roots
from anarchic.errors import DataError

_MEAN = (129.30416561, 124.0699627, 112.43405006)  # of the training images, of 255
_STD = (68.1702429, 65.3918073, 70.4183702)
_IMAGES = {"train.bin": 50_000, "test.bin": 10_000}
_CLASSES = {"coarse": 20, "fine": 100}  # in the order of the label bytes


def load_cifar100(data_dir: Folder = None, *, label: Literal["fine", "coarse"] = "fine") -> Dataset:
    """CIFAR-100 with its 100 fine or its 20 coarse labels, normalised and augmented as CIFAR-10.

    The version for Python is a pickle, which could run any program, and is not read.
    """
    check_choice("kind of label", label, _CLASSES)
    _refuse_pickle(data_dir)
    parts = {}
    for name, images in _IMAGES.items():
        records = read_records(find("cifar100", name, data_dir), images, tuple(_CLASSES.values()))
        x = np.empty((images, 3, 32, 32), np.float32)
        normalise(records[:, 2:], x, _MEAN, _STD)
        parts[name] = x, records[:, list(_CLASSES).index(label)].astype(np.int64)
    return Dataset(
        "cifar100",
        *parts["train.bin"],
        *parts["test.bin"],
        classes=_CLASSES[label],
        augment="crop-flip",
    )


def _refuse_pickle(data_dir: Folder) -> None:
    folders = [root / "cifar100" / "cifar-100-python" for root in roots(data_dir)]
    there = next((folder for folder in folders if folder.exists()), None)
    if there is not None and locate("cifar100", data_dir) is None:
        raise DataError(
            f"{there} is the version for Python, a pickle, which could run any program and is not "
            "opened: put cifar-100-binary.tar.gz, the binary version, beside it."
        )
