"""Makes a failing history shorter: events are left out as long as the same invariant breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.faults.plan import Event, Plan
from tests.faults.world import Outcome, World

MOST_RUNS = 200


def shrunk(plan: Plan, run: Callable[[Plan], Outcome] | None = None) -> tuple[Plan, Outcome]:
    """A plan with fewer events that breaks the same invariant, and what happens in it.

    Halves are tried first, then quarters, and so on down to single events.
    """
    live = run or (lambda plan: World(plan).run())
    best, found = plan, live(plan)
    if found.violation is None:
        return best, found
    name, runs = found.violation.name, 0
    size = max(1, len(best.events) // 2)
    while runs < MOST_RUNS:
        smaller = False
        for start in range(0, len(best.events), size):
            events = _without(best.events, start, size)
            tried = live(replace(best, events=events))
            runs += 1
            if tried.violation is not None and tried.violation.name == name:
                best, found, smaller = replace(best, events=events), tried, True
                break
            if runs >= MOST_RUNS:
                break
        if not smaller:
            if size == 1:
                break
            size = max(1, size // 2)
    return best, found


def _without(events: tuple[Event, ...], start: int, size: int) -> tuple[Event, ...]:
    return events[:start] + events[start + size :]
