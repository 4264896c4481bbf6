"""What every loader returns, and the loaders by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Literal, get_type_hints

import numpy as np
from numpy.typing import NDArray

from anarchic.core import registry
from anarchic.core.validation import check_kind, did_you_mean
from anarchic.errors import ConfigError, DataError

Array = NDArray[Any]
Folder = str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)  # compared by identity: its arrays are large
class Dataset:
    """Training and test samples, ready for a model.

    ``x_*`` are float32 inputs, already normalised, or integer tokens; ``y_*`` are int64 labels.
    A data set with natural owners (the roles of a play) has ``roles``, and in ``role_train`` the
    role of each training sample.
    """

    name: str
    x_train: Array  # (samples, ...)
    y_train: Array  # (samples,)
    x_test: Array
    y_test: Array
    classes: int
    roles: tuple[str, ...] = ()
    role_train: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    augment: Literal["none", "crop-flip"] = "none"  # what training does to an image by default

    def __post_init__(self) -> None:
        train, test = (self.x_train, self.y_train), (self.x_test, self.y_test)
        for part, (x, y) in {"training": train, "test": test}.items():
            if len(x) != len(y) or len(y) == 0:
                raise DataError(
                    f"{self.name}: {len(x)} {part} inputs but {len(y)} labels; the files do not "
                    "match. Fetch them again."
                )
            if not (np.min(y) >= 0 and np.max(y) < self.classes):
                raise DataError(
                    f"{self.name}: the {part} labels go from {np.min(y)} to {np.max(y)}, but there "
                    f"are {self.classes} classes: number them from 0."
                )


def load(name: str, data_dir: Folder = None, **options: object) -> Dataset:
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
