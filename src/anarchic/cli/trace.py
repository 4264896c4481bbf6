"""Recorded participation for the simulator: who reported when, in a server or in an earlier run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from anarchic import wire
from anarchic.errors import ConfigError, RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import Settings, build
from anarchic.train.compute import Compute


def read_trace(where: str) -> Timetable:
    """The timetable in a run directory, in a file of one, or in the store of a server."""
    path = Path(where)
    if path.is_dir():
        path = path / "timetable.safetensors"
    if path.suffix == ".safetensors":
        return Timetable.from_arrays(*wire.read(path))
    from anarchic.server.replay import timetable_of
    from anarchic.server.sql import open_store

    if "://" not in where and not path.is_file():
        raise RunError(f"There is no trace {where}: give a server's store or a run directory.")
    store = open_store(where)
    try:
        return timetable_of(store)
    finally:
        store.close()


def driven(settings: Settings, compute: Compute, table: Timetable, trace: str) -> Experiment:
    """The experiment of ``settings`` with the participation of a trace instead of its own."""
    taken: dict[str, Any] = {"workers": table.workers, "rounds": table.rounds, "m": table.m}
    if table.m == 1 and settings.rule == "fedasync":
        taken.pop("m")  # it has no such setting
    for name, value in taken.items():
        given = getattr(settings, name)
        if given not in (value, getattr(Settings, name)):
            raise ConfigError(f"The trace has {name}={value}, not {given}: leave the option out.")
    experiment = build(replace(settings, **taken), compute)
    about = {**experiment.about, "trace": trace}
    return replace(experiment, timetable=table.cut(table.rounds), about=about)
