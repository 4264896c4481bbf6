"""The data sets by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import get_type_hints

from anarchic.core import registry
from anarchic.core.validation import check_kind, did_you_mean
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **options: object) -> Dataset:
    """Load a data set by name, or by the ``module:name`` of a loader, with its loader's options.

    A loader is a function that takes ``data_dir``, where its files may be, and its options.

    >>> load("digits").x_train.shape
    (1437, 1, 8, 8)
    """
    check_options(name, options)
    data: Dataset = registry.find("datasets", name)(data_dir, **options)
    return data


def check_options(name: str, options: Mapping[str, object]) -> None:
    """Refuse a data set that nobody knows, and options that it does not have or cannot read."""
    hints = get_type_hints(registry.find("datasets", name))
    known = [option for option in hints if option not in ("data_dir", "return")]
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{did_you_mean(option, known)} Its options: "
                f"{', '.join(known) or 'none'}."
            )
        check_kind(f"{option} of {name}", value, hints[option])
