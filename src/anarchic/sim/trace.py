"""Runs with recorded participation: who reported when, in a server or in an earlier run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import Settings, build
from anarchic.train.compute import Compute


def build_traced(
    settings: Settings, timetable: Timetable, *, name: str, compute: Compute | None = None
) -> Experiment:
    """The experiment of ``settings`` with a recorded timetable instead of their participation.

    ``name`` says where it was recorded; it is written to the run directory.
    """
    recorded: dict[str, Any] = {
        "workers": timetable.workers,
        "rounds": timetable.rounds,
        "m": timetable.m,
    }
    if timetable.m == 1 and settings.rule == "fedasync":
        recorded.pop("m")  # it has no such setting
    for setting, value in recorded.items():
        given = getattr(settings, setting)
        if given not in (value, getattr(Settings, setting)):
            raise ConfigError(
                f"The trace has {setting}={value}, not {given}: leave the option out."
            )
    experiment = build(replace(settings, **recorded), compute)
    about = {**experiment.about, "trace": name}
    return replace(experiment, timetable=timetable.cut(timetable.rounds), about=about)
