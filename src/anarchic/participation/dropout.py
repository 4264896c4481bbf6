"""Workers that fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Bools, Floats


@final
@dataclass(frozen=True, slots=True)
class Dropout:
    """A visit is lost in mid-work with probability ``lost_share``; the worker then idles as usual.

    After any visit, lost or not, a worker leaves for ever with probability ``leave``.
    """

    lost_share: float = 0.0
    leave: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("lost_share", self.lost_share), ("leave", self.leave)):
            if not 0 <= value < 1:
                raise ConfigError(
                    f"Dropout needs 0 <= {name} < 1, got {value}; at 1 no update would arrive."
                )

    def loses(self, rng: Generator, work_s: Floats) -> Bools:
        """Which visits are lost. Shortens their ``work_s``, in place, to a uniform part of it."""
        if self.lost_share == 0:
            return np.zeros(len(work_s), np.bool_)
        # One draw does both: given u < lost_share, u / lost_share is uniform.
        u = rng.random(len(work_s))
        lost = u < self.lost_share
        work_s[lost] *= u[lost] / self.lost_share
        return lost

    def stays(self, rng: Generator, workers: int) -> Bools:
        """Which of this many workers come again."""
        return rng.random(workers) >= self.leave
