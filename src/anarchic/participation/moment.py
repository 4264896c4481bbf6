"""What a live worker knows when it decides whether to visit the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """The time now and of the last visit; before the first visit that is the worker's start."""

    now_s: float  # wall clock
    began_s: float  # the last visit
    ended_s: float
    visits: int  # so far
    chance: float  # uniform on [0, 1), drawn once per visit
