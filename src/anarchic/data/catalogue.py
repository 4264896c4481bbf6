"""The data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, get_args, get_type_hints

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
            f"There is no data set {name!r}.{_nearest(name, DATASETS)} Known: "
            f"{', '.join(DATASETS)}."
        )
    hints = get_type_hints(DATASETS[name])
    known = [option for option in hints if option not in ("data_dir", "return")]
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{_nearest(option, known)} Its options: "
                f"{', '.join(known) or 'none'}."
            )
        kinds = [_KINDS[kind] for kind in get_args(hints[option]) or [hints[option]]]
        if not any(isinstance(value, fitting) for fitting, _ in kinds):
            wanted = " or ".join(words for _, words in kinds)
            raise ConfigError(f"{option} of {name} must be {wanted}, got {value!r}.")


_KINDS: Mapping[Any, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "True or False"),
    type(None): (type(None), "None"),
}


def _nearest(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
