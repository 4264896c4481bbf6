"""The data sets by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import signature
from typing import get_type_hints

from anarchic.core import registry
from anarchic.core.validation import check_kind, did_you_mean
from anarchic.data.dataset import Dataset
from anarchic.errors import ConfigError


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **options: object) -> Dataset:
    """Load a data set by name, or by the ``module:name`` of a loader, with its loader's options.

    A loader is a function of its options and, if it reads files, of ``data_dir``.

    >>> load("digits").x_train.shape
    (1437, 1, 8, 8)
    """
    check_options(name, options)
    loader = registry.find("datasets", name)
    where = {"data_dir": data_dir} if "data_dir" in signature(loader).parameters else {}
    data: Dataset = loader(**where, **options)
    return data


def check_options(name: str, options: Mapping[str, object]) -> None:
    """Refuse a data set that nobody knows, and options that it does not have or cannot read."""
    loader = registry.find("datasets", name)
    hints = get_type_hints(loader)
    known = [option for option in signature(loader).parameters if option != "data_dir"]
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"{name} has no option {option!r}.{did_you_mean(option, known)} Its options: "
                f"{', '.join(known) or 'none'}."
            )
        check_kind(f"{option} of {name}", value, hints.get(option))
