"""Writes ``digits.npz`` from scikit-learn's copy of the UCI data; run once, kept for the record.

    python -m anarchic.data.digits_origin

Only this script needs scikit-learn.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from anarchic.data.digits import DIGITS_FILE


def main() -> None:
    """Write the images as (1797, 8, 8) and the labels as (1797,), both uint8, in UCI's order."""
    copy = import_module("sklearn.datasets").load_digits()
    np.savez_compressed(
        DIGITS_FILE, images=copy.images.astype(np.uint8), labels=copy.target.astype(np.uint8)
    )


if __name__ == "__main__":
    main()
