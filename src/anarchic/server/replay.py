"""Folding the recorded updates again, and the trace of a run as a timetable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from anarchic import wire
from anarchic.core.rule import Rule
from anarchic.errors import RunError, UpdateRefused
from anarchic.participation.timetable import Timetable, running_numbers
from anarchic.server.runs import stored_layout, stored_rules
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
    first, newest = (store.model(0), store.model(run.version)) if run else (None, None)
    if run is not None and run.version and first is None:
        raise RunError(
            "The store has dropped its first model and updates: only a run whose server had "
            "--keep-payloads from the beginning can be replayed."
        )
    if run is None or first is None or newest is None:
        raise RunError("The store has no run that could be replayed, or not its first model.")
    layout = stored_layout(run)
    rule = served_rule(stored_rules(run), layout)
    _, snapshot, _ = wire.decode_snapshot(first)
    _, published, _ = wire.decode_snapshot(newest)
    state, revoked = rule.init(snapshot.params), store.revoked()
    count = 0
    for folded in store.trace():
        if folded.order is None or not folded.version:  # it waits, or was set aside
            continue
        if folded.version > run.version:  # by a server that was at work meanwhile
            break
        # A version that a timer made has fewer updates than m.
        state = _up_to(rule, state, folded.version - 1)
        for worker in revoked.pop(state.version, ()):
            rule.forget(state, worker)
        body = store.body(folded.seq)
        if body is None:
            raise RunError(
                f"Update {folded.seq} of worker {folded.worker!r} is no longer stored: a run can "
                "be replayed if its server kept the payloads (--keep-payloads)."
            )
        names = frozenset(state.extras)
        update = wire.decode_update(body, layout, extras=names, worker=folded.worker).update
        with suppress(UpdateRefused):  # the server passed over it as well
            state = rule.receive(state, update)
        count += 1
        progress(count)
    state = _up_to(rule, state, run.version)
    same = state.params.tobytes() == published.params.tobytes() and all(
        state.extras[name].tobytes() == vector.tobytes()
        for name, vector in published.extras.items()
    )
    return Replay(state.version, count, same and state.version == published.version)


def _up_to(rule: Rule[Any], state: Any, version: int) -> Any:
    return rule.flush(state) if state.version < version else state


def timetable_of(store: Store) -> Timetable:
    """The trace of a run as a timetable for the simulator, its time in seconds since the first."""
    run = store.run()
    rows = [row for row in store.trace() if row.version] if run is not None else []
    if run is None or not rows:
        raise RunError("The store has no folded update, so there is no timetable in it.")
    m = served_rule(stored_rules(run)).m
    for index, row in enumerate(rows):
        if row.version != index // m + 1:
            raise RunError(
                f"Version {row.version} was not made of {m} updates (a timer stepped): such a run "
                "has no timetable."
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
