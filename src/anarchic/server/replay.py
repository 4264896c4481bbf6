"""Folding the recorded updates again, and the trace of a run as a timetable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anarchic import wire
from anarchic.core.types import Snapshot
from anarchic.errors import RunError
from anarchic.participation.timetable import Timetable, running_numbers
from anarchic.server.refold import refold
from anarchic.server.runs import stored_rules
from anarchic.server.settings import served_rule
from anarchic.server.store import Store


@dataclass(frozen=True)
class Replay:
    """The result of folding everything again."""

    version: int
    updates: int
    equal: bool  # parameters and extras equal the published ones, byte for byte


def replay(store: Store, progress: Callable[[int], None] = lambda count: None) -> Replay:
    """Fold the recorded updates in their order, from the first model, and compare the end."""
    run = store.run()
    newest = None if run is None else store.model(run.version)
    if run is None or newest is None:
        raise RunError("The store has no run that could be replayed, or not its newest model.")
    _, published, _ = wire.decode_snapshot(newest)
    found = refold(store, until=run.version, progress=progress)
    same = is_same(found.state, published)
    return Replay(run.version, found.updates, same and found.state.version == published.version)


def is_same(state: Any, published: Snapshot) -> bool:
    """Whether a state has the parameters of a snapshot and what travels beside them, to the bit."""
    return state.params.tobytes() == published.params.tobytes() and all(
        state.extras[name].tobytes() == vector.tobytes()
        for name, vector in published.extras.items()
    )


def timetable_of(store: Store) -> Timetable:
    """The trace of a run as a timetable for the simulator, its time in seconds since the first."""
    run = store.run()
    rows = [row for row in store.trace() if row.version] if run is not None else []
    if run is None or not rows:
        raise RunError("The store has no folded update, so there is no timetable in it.")
    if run.trace_from:
        raise RunError(
            f"The trace was compacted: its first {run.trace_from} updates are gone, so there is no "
            "timetable in it. Use a backup from before."
        )
    m = served_rule(stored_rules(run)).m
    for index, row in enumerate(rows):
        if row.version != index // m + 1:
            raise RunError(
                f"Version {row.version} was not made of {m} updates (a timer or an operator made a "
                "step): such a run has no timetable."
            )
    names, numbers = np.unique([row.worker for row in rows], return_inverse=True)
    worker = numbers.astype(np.int32)
    table = Timetable(
        workers=len(names),
        m=m,
        worker=worker,
        visit=running_numbers(worker),
        base_version=np.array([row.base_version for row in rows], np.int32),
        local_steps=np.array([row.local_steps for row in rows], np.int32),
    )
    table.check()
    return table
