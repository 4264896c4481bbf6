"""Experiments whose participation was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core import factory, registry
from anarchic.errors import ConfigError
from anarchic.participation.make import from_visits
from anarchic.participation.recorded import read_visits
from anarchic.participation.timetable import Timetable
from anarchic.sim.arrivals import coupling_of
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import Settings, build, make_rule
from anarchic.train.compute import Compute


def build_traced(
    settings: Settings, timetable: Timetable, *, name: str, compute: Compute | None = None
) -> Experiment:
    """The experiment of ``settings`` with a recorded timetable instead of their participation.

    ``name`` says where it was recorded; it is written to the run directory. Fewer ``rounds`` than
    were recorded, but not the default number, are the first of them.
    """
    timetable = beginning(timetable, settings.rounds)
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


def table_of_visits(path: Path, settings: Settings) -> Timetable:
    """The timetable of visits in a CSV file, with what the settings say of the server.

    It ends at ``until_s``, and where the visits end.
    """
    visits = read_visits(path)
    workers = settings.workers or int(visits.worker.max()) + 1
    m, seed = make_rule(settings, workers).m, settings.seed
    table = from_visits(visits, m, workers, coupling=coupling_of(settings), seed=seed)
    if settings.until_s is not None:
        table = table.cut(table.rounds_until(settings.until_s))
    if not table.rounds:
        raise ConfigError(
            f"The visits in {path.name} make no round of m={m} updates in time: lower m."
        )
    return table


def beginning(timetable: Timetable, rounds: int) -> Timetable:
    """Its first rounds, for a run that can go on with the others; for the default number all."""
    if rounds == Settings.rounds or rounds >= timetable.rounds:
        return timetable
    rest = timetable.base_version[timetable.first_row(rounds) :]
    later = np.unique(np.append(rest[rest < rounds], rounds)).astype(np.int32)
    return replace(timetable.cut(rounds), later=later)
