"""The experiment of a recorded run, to be computed again on the CPU."""

from __future__ import annotations

from dataclasses import replace

from anarchic.errors import RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings, build, make_table
from anarchic.train.compute import Compute


def experiment_of(record: RunDirectory) -> tuple[Settings, Experiment]:
    """Its settings, and the experiment as far as the run has come.

    It is the run's own: one whose data, model or rule are no longer those of the record is refused.
    """
    found = record.settings()
    settings = Settings.from_record({n: value for n, value in found.items() if n != "trace"})
    compute = Compute.from_record(found)
    # Curvature is a difference of gradients, for which a low precision is not enough.
    here = replace(compute, device="cpu", precision="ieee", graphs=None, backend="batched")
    rounds, table = _rounds_done(record), record.timetable()
    experiment = build(settings, here, table)
    if experiment.fingerprint(compute) != found["fingerprint"]:
        raise RunError(
            f"The run in {record.path} was trained on other data than {settings.data!r} holds now, "
            "or with another model or rule than its settings name: bring back what it was trained "
            "with, or train it again."
        )
    if table.wasted is None and "trace" not in found:
        table = _with_wasted(table, settings)
    return settings, replace(experiment, timetable=table.cut(rounds))


def _rounds_done(record: RunDirectory) -> int:
    metrics = record.metrics() if (record.path / "metrics.csv").exists() else []
    rounds = int(metrics[-1]["round"] or 0) if metrics else 0
    if rounds < 1:
        raise RunError(f"The run in {record.path} has not finished a round yet: let it go on.")
    return rounds


def _with_wasted(table: Timetable, settings: Settings) -> Timetable:
    """The same with what was in vain, which runs recorded by earlier versions do not hold."""
    drawn = make_table(settings, table.workers)
    if drawn.wasted is None or not drawn.begins_with(table):
        return table
    return replace(table, wasted=drawn.wasted.block(0, table.rounds))
