"""What every loader returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import DataError

Array = NDArray[Any]


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
        for part, x, y in (
            ("training", self.x_train, self.y_train),
            ("test", self.x_test, self.y_test),
        ):
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
