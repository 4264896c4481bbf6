"""Participation processes that other packages offer, or that ``module:Name`` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

from numpy.random import Generator

from anarchic.core import registry
from anarchic.errors import ConfigError
from anarchic.participation.horizon import make_timetable
from anarchic.participation.timetable import Timetable

OF_WORK = {"step_s", "time_distribution", "slow_share", "slow_factor"}  # settings within ``work``
OF_HABITS = OF_WORK | {"lost_share", "timeout_s", "availability"}  # around an idle time


def make_process(name: str, given: Mapping[str, Any], chosen: Iterable[str]) -> Any:
    """The process of that name, made with those settings that its constructor names.

    They are the settings of a run by their names, ``workers``, ``m``, ``steps`` (a ``StepPolicy``)
    and ``work`` (a ``Work``). One of the ``chosen`` that the process does not take is refused. It
    may also be an ``Idle``, which says when workers turn up and leaves the rest to ``Habits``.
    """
    kind = registry.find("participation", name)
    wants = set(signature(kind).parameters)
    used = wants | (OF_HABITS if hasattr(kind, "pulls") else OF_WORK if "work" in wants else set())
    for each in chosen:
        if each not in used:
            raise ConfigError(
                f"Participation {name!r} has no use for {each}={given[each]!r}: leave it out."
            )
    return kind(**{each: value for each, value in given.items() if each in wants})


def timetable_of(process: Any, *, workers: int, m: int, rounds: int, rng: Generator) -> Timetable:
    """What a process gives by ``timetable(rng, rounds)``, or by its course in continuous time."""
    if hasattr(process, "timetable"):
        table: Timetable = process.timetable(rng, rounds)
        return table
    if not hasattr(process, "begin"):
        raise ConfigError(
            f"{type(process).__name__} is no participation process: it needs timetable(rng, "
            "rounds), or pace_s and begin(rng, workers), or to be an Idle."
        )
    return make_timetable(process, workers=workers, m=m, rounds=rounds, rng=rng)
