"""Handwritten digits that come with the package: 1,797 images, 8x8, seventeen grey levels.

"Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, doi:10.24432/C50P49, CC BY 4.0. Changed here: stored compressed, with a new
split. The file holds ``images`` and ``target`` of scikit-learn's ``load_digits`` as uint8.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anarchic.data.dataset import Dataset, Folder

DIGITS_FILE = Path(__file__).with_name("digits.npz")
_MEAN, _STD = 0.3058, 0.3762  # of the training pixels, in [0, 1]


def load_digits(data_dir: Folder = None) -> Dataset:
    """1,437 training and 360 test images (1x8x8), normalised; ``data_dir`` is not needed.

    The test images are every fifth one in order of label, so each class gives a fifth of its
    images, and no random numbers are involved.
    """
    images, labels, test = load_counts()
    x = ((images[:, np.newaxis].astype(np.float32) / 16) - np.float32(_MEAN)) / np.float32(_STD)
    return Dataset("digits", x[~test], labels[~test], x[test], labels[test], classes=10)


def load_counts() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """All images as counts of 0 to 16, their labels, and which of them are test images."""
    with np.load(DIGITS_FILE) as stored:
        images, labels = stored["images"], stored["labels"].astype(np.int64)
    test = np.zeros(len(labels), bool)
    test[np.argsort(labels, kind="stable")[::5]] = True
    return images, labels, test
