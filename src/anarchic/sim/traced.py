"""Experiments whose participation was recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anarchic.core import factory, registry
from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import Settings, build
from anarchic.train.compute import Compute


def build_traced(
    settings: Settings, timetable: Timetable, *, name: str, compute: Compute | None = None
) -> Experiment:
    """The experiment of ``settings`` with a recorded timetable instead of their participation.

    ``name`` says where it was recorded; it is written to the run directory. Fewer ``rounds`` than
    were recorded, but not the default number, are the first of them.
    """
    if Settings.rounds != settings.rounds < timetable.rounds:
        timetable = _beginning(timetable, settings.rounds)
    names = ["workers", "rounds", "m"]
    if timetable.m == 1 and "m" not in factory.setting_names(registry.find("rules", settings.rule)):
        names.remove("m")
    recorded: dict[str, Any] = {name: getattr(timetable, name) for name in names}
    for setting, value in recorded.items():
        given = getattr(settings, setting)
        if given not in (value, getattr(Settings, setting)):
            raise ConfigError(
                f"The trace has {setting}={value}, not {given}: leave the option out."
            )
    whole = replace(timetable.cut(timetable.rounds), later=timetable.later)
    experiment = build(replace(settings, **recorded), compute, whole)
    return replace(experiment, about={**experiment.about, "trace": name})


def _beginning(timetable: Timetable, rounds: int) -> Timetable:
    """Its first rounds, for a run that can go on with the others."""
    rest = timetable.base_version[rounds * timetable.m :]
    later = np.unique(np.append(rest[rest < rounds], rounds)).astype(np.int32)
    return replace(timetable.cut(rounds), later=later)
