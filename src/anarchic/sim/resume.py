"""Going on with a recorded run: to its end, or further than it was first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.errors import RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import FORMAT, RunDirectory
from anarchic.sim.settings import Settings, build, make_table
from anarchic.train.compute import Compute


def recorded(experiment: Experiment, callbacks: Sequence[str] = ()) -> dict[str, Any]:
    """What ``settings.json`` says of a run; ``callbacks`` are those that it has by name."""
    task = experiment.task
    own = {"buffers": getattr(task, "buffers", "average")} if task.layout.buffers else {}
    known = {"fingerprint": experiment.fingerprint(), "format": FORMAT}
    heard = {"callbacks": list(callbacks)} if callbacks else {}
    return {**own, **experiment.about, **heard, **known}


def reopen(
    what: Settings | Experiment,
    compute: Compute | None,
    path: Path,
    callbacks: Sequence[str] = (),
) -> tuple[Experiment, RunDirectory]:
    """The run in a directory, which must be that of ``what``, or the beginning of it.

    ``callbacks`` are recorded in place of those that it had by name; without them it keeps its own.
    """
    experiment, record = _reopened(what, compute, path)
    if callbacks:
        record.note_callbacks(callbacks)
    return experiment, record


def _reopened(
    what: Settings | Experiment, compute: Compute | None, path: Path
) -> tuple[Experiment, RunDirectory]:
    record = RunDirectory(path)
    if isinstance(what, Settings) and compute is None:
        compute = Compute.from_record(record.settings())
    experiment = what if isinstance(what, Experiment) else build(what, compute)
    asked = recorded(experiment)
    stored = record.timetable()
    if record.settings()["fingerprint"] == asked["fingerprint"]:
        if stored != experiment.timetable:  # it was cut off while it was made longer
            record.write_timetable(experiment.timetable)
    else:
        if experiment.timetable.begins_with(stored):
            return _go_further(what, compute, experiment, record, stored)
        if isinstance(what, Settings) and _drawn_before(what, experiment.timetable, record):
            experiment = build(what, compute, _same_length(stored, experiment.timetable, path))
            asked = recorded(experiment)
    return experiment, RunDirectory.reopen(path, asked)


def _drawn_before(what: Settings, table: Timetable, record: RunDirectory) -> bool:
    """Whether the settings are the run's own, and earlier code drew other timetables from them."""
    own = Settings.from_record(record.settings())
    return table.begins_with(make_table(own, table.workers))


def _same_length(stored: Timetable, wanted: Timetable, path: Path) -> Timetable:
    if stored.rounds != wanted.rounds:
        raise RunError(
            f"The timetable in {path} was drawn by an earlier version of the program, which cannot "
            f"be made longer: resume it with rounds={stored.rounds}, or begin a new run."
        )
    return stored


def _go_further(
    what: Settings | Experiment,
    compute: Compute | None,
    experiment: Experiment,
    record: RunDirectory,
    stored: Timetable,
) -> tuple[Experiment, RunDirectory]:
    """The run in a directory that ends earlier than the experiment and is now to be that."""
    if isinstance(what, Settings):
        # As it was asked for: its length may decide how a run is computed.
        short = build(replace(what, rounds=stored.rounds, until_s=None), compute, stored)
    else:
        short = replace(experiment, timetable=stored)
    before = recorded(short)
    RunDirectory.reopen(record.path, before)  # refuses another run
    if experiment.eval_every is None:
        # The interval follows from the number of rounds: it stays what it was.
        about = {**experiment.about, "eval_every": short.interval}
        experiment = replace(experiment, eval_every=short.interval, about=about)
    earlier = [*record.settings().get("earlier", []), before["fingerprint"]]
    if not _computed_alike(short, experiment) or not _on_the_way(record, short, experiment):
        earlier = []
        record.checkpoint.unlink(missing_ok=True)  # the run begins again
    heard = record.settings().get("callbacks", [])
    record.extend({**recorded(experiment, heard), "earlier": earlier}, experiment.timetable)
    return experiment, record


def _computed_alike(short: Experiment, long: Experiment) -> bool:
    """Whether the number of rounds changes nothing but the timetable."""
    loops = [getattr(each.task, "lane_visits", None) is None for each in (short, long)]
    same = replace(long, timetable=short.timetable).fingerprint() == short.fingerprint()
    return same and loops[0] == loops[1]


def _on_the_way(record: RunDirectory, short: Experiment, long: Experiment) -> bool:
    """Whether the longer run would have come to the same checkpoint.

    It has the versions that later updates start from. And no update after the end of the shorter
    run could have been computed by then, together with others: that may change their last bits.
    """
    saved = record.load_checkpoint()
    if saved is None:
        return True
    arrays, numbers = saved
    table, row = long.timetable, int(numbers["row"])
    version, end = int(np.searchsorted(table.ends, row, side="right")), len(short.timetable)
    ahead = max(long.lookahead, table.m)
    if (table.base_version[end : row - 1 + ahead] < version).any():
        return False
    waits = np.ones(len(table), np.bool_)
    waits[:row] = waits[numbers["waiting"]] = False
    needed = np.unique(table.base_version[waits & (table.base_version <= version)])
    return all(f"snapshot.{v}.params" in arrays for v in needed.tolist())
