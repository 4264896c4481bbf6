"""Workers that join or leave in the middle of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.random import Generator

from anarchic.core.reading import shown
from anarchic.core.types import Rows
from anarchic.errors import ConfigError
from anarchic.participation.availability import Availability

MOST_S = 1e12  # 30,000 years; later, a float has no milliseconds


@final
@dataclass(frozen=True, slots=True)
class Change:
    """A share of the workers, drawn at random, joins or leaves for good at a time."""

    share: float
    at_s: float

    def __post_init__(self) -> None:
        if not (0 <= self.share <= 1 and 0 <= self.at_s <= MOST_S):
            raise ConfigError(
                f"Workers join or leave with 0 <= share <= 1 at a time from 0 to {MOST_S:g} s, got "
                f"share={self.share} and at_s={self.at_s}."
            )

    @staticmethod
    def parse(name: str, text: str) -> Change:
        """``"0.3@600"``: 30 % of the workers, after 600 s."""
        share, at, at_s = text.partition("@")
        try:
            numbers = float(share), float(at_s)
        except ValueError:
            numbers = None
        if not at or numbers is None:
            raise ConfigError(
                f"{name} takes SHARE@SECONDS, such as 0.3@600 for 30 % of the workers after 600 s; "
                f"got {shown(text)}."
            )
        return Change(*numbers)

    def chosen(self, rng: Generator, workers: int) -> Rows:
        """The workers that it is about."""
        return rng.permutation(workers)[: round(self.share * workers)]


def present(
    workers: int,
    rng: Generator,
    *,
    join: Change | None = None,
    leave: Change | None = None,
    within: Availability | None = None,
) -> Availability | None:
    """When workers are there, from when they join until they leave; None for always.

    ``within`` are windows in which they are available besides. A worker that leaves before it joins
    never comes. The two choices are independent.
    """
    if join is None and leave is None:
        return within
    from_s, until_s = np.zeros(workers), np.full(workers, np.inf)
    # Each has draws of its own, so that one does not change whom the other is about.
    for change, draws, times in zip((join, leave), rng.spawn(2), (from_s, until_s), strict=True):
        if change is not None:
            times[change.chosen(draws, workers)] = change.at_s
    worker = np.arange(workers, dtype=np.int32)
    if within is not None:
        within.check(workers)
        worker = within.worker
        from_s = np.maximum(from_s[worker], within.from_s)
        until_s = np.minimum(until_s[worker], within.until_s)
    there = from_s < until_s
    if not there.any():
        raise ConfigError("No worker is ever there: let some join before they leave.")
    return Availability.of(worker[there], from_s[there], until_s[there])
