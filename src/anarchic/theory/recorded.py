"""The experiment of a recorded run, to be computed again on the CPU."""

from __future__ import annotations

from dataclasses import replace

from anarchic.errors import RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings, build
from anarchic.train.compute import Compute


def experiment_of(record: RunDirectory) -> tuple[Settings, Experiment]:
    """Its settings, and the experiment as far as the run has come."""
    settings, compute = _settings(record)
    return settings, replace(build(settings, compute), timetable=_timetable(record))


def _settings(record: RunDirectory) -> tuple[Settings, Compute]:
    """The run's settings, with the CPU and full precision in place of what computed it.

    Curvature is a difference of gradients, for which a low precision is not enough.
    """
    found = {name: value for name, value in record.settings().items() if name != "trace"}
    compute = Compute.from_record(found)
    here = replace(compute, device="cpu", precision="ieee", graphs=None, backend="batched")
    return Settings.from_record(found), here


def _timetable(record: RunDirectory) -> Timetable:
    """The timetable of the rounds that the run has finished."""
    metrics = record.metrics() if (record.path / "metrics.csv").exists() else []
    rounds = int(metrics[-1]["round"] or 0) if metrics else 0
    if rounds < 1:
        raise RunError(f"The run in {record.path} has not finished a round yet: let it go on.")
    return record.timetable().cut(rounds)
