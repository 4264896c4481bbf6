"""What workers did in vain, because of the server or because they failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.errors import ConfigError

Counts = NDArray[np.int64]
PREFIX = "wasted."  # of the columns in a file


@dataclass(frozen=True, eq=False)
class Wasted:
    """Counts between the version before a round and its own, one number per round.

    A refused update was pulled, worked for and pushed, so it costs two transfers and its local
    steps; of one that was stopped those count that were taken by then. How many local steps a lost
    visit took is not known.
    """

    refused: Counts  # (rounds,) updates that the server did not take
    retried: Counts  # (rounds,) refused updates after which the worker began again at once
    skipped: Counts  # (rounds,) visits without work, for there was nothing new
    stopped: Counts  # (rounds,) visits that the server ended when the cohort was complete
    lost: Counts  # (rounds,) visits that failed in mid-work
    local_steps: Counts  # (rounds,) of refused and stopped visits

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> Wasted:
        """From one row of counts per round, in the order of the fields."""
        table = np.array(rows, np.int64).reshape(len(rows), len(NAMES))
        return Wasted(*(np.ascontiguousarray(column) for column in table.T))

    @property
    def total(self) -> Mapping[str, int]:
        """Sums over the rounds, by name."""
        return {name: int(getattr(self, name).sum()) for name in NAMES}

    @property
    def transfers(self) -> int:
        """Models and updates that moved in vain: two of a refused update, one of a visit that ended
        before its push."""
        total = self.total
        return 2 * total["refused"] + total["stopped"] + total["lost"]

    def block(self, first: int, end: int) -> Wasted:
        """The counts of some rounds."""
        return Wasted(*(getattr(self, name)[first:end].copy() for name in NAMES))

    def to_arrays(self) -> dict[str, Counts]:
        """Columns by the names that they have in a file."""
        return {PREFIX + name: getattr(self, name) for name in NAMES}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], rounds: int) -> Wasted | None:
        """What ``to_arrays`` returned, checked; None where there is nothing of it."""
        found = {name: arrays[PREFIX + name] for name in NAMES if PREFIX + name in arrays}
        if not found:
            return None
        for name in NAMES:
            column = found.get(name)
            if column is None or column.dtype != np.int64 or column.shape != (rounds,):
                raise ConfigError(
                    f"A saved timetable has {PREFIX}{name} as one whole number (int64) for each of "
                    f"its {rounds} rounds; save it again."
                )
            if (column < 0).any():
                raise ConfigError(f"A saved timetable counts {name} below 0; save it again.")
        return Wasted(**found)

    @staticmethod
    def join(parts: Sequence[Wasted]) -> Wasted:
        """Rounds that follow each other."""
        columns: list[Any] = [np.concatenate([getattr(p, name) for p in parts]) for name in NAMES]
        return Wasted(*columns)


NAMES = tuple(each.name for each in fields(Wasted))
REFUSED, RETRIED, SKIPPED, STOPPED, LOST, STEPS = range(len(NAMES))
