"""The data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import get_type_hints

from anarchic.core.validation import check_kind, did_you_mean
from anarchic.data.cifar10 import load_cifar10
from anarchic.data.dataset import Dataset
from anarchic.data.digits import load_digits
from anarchic.data.mnist import load_fashion_mnist, load_mnist
from anarchic.data.shakespeare import load_shakespeare
from anarchic.data.synthetic import load_synthetic
from anarchic.errors import ConfigError

DATASETS: Mapping[str, Callable[..., Dataset]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "shakespeare": load_shakespeare,
    "synthetic": load_synthetic,
}
"""Name -> loader; a loader takes ``data_dir`` and its own options."""


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **options: object) -> Dataset:
    """Load a data set by name; ``options`` are those of its loader.

    >>> load("digits").x_train.shape
    (1437, 1, 8, 8)
    """
    check_options(name, options)
    return DATASETS[name](data_dir, **options)


def check_options(name: str, options: Mapping[str, object]) -> None:
    """Refuse a data set that nobody knows, and options that it does not have or cannot read."""
    if name not in DATASETS:
        raise ConfigError(
            f"There is no data set {name!r}.{did_you_mean(name, DATASETS)} Known: "
            f"{', '.join(DATASETS)}."
        )
    hints = get_type_hints(DATASETS[name])
    known = [option for option in hints if option not in ("data_dir", "return")]
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{did_you_mean(option, known)} Its options: "
                f"{', '.join(known) or 'none'}."
            )
        check_kind(f"{option} of {name}", value, hints[option])
