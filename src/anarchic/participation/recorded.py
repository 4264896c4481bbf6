"""Visits that were recorded somewhere, read from a CSV file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from anarchic.errors import DataError
from anarchic.participation.columns import Line, read_lines
from anarchic.participation.timetable import MOST_STEPS
from anarchic.participation.visits import Visits

_COLUMNS = ("worker", "pull_s", "push_s", "local_steps")
_LOST = {"": False, "0": False, "false": False, "1": True, "true": True}


class _Visit(NamedTuple):
    worker: int
    pull_s: float
    push_s: float
    local_steps: int
    line: int


def read_visits(path: Path | str) -> Visits:
    """Read a CSV file with the columns worker, pull_s, push_s, local_steps and, optionally, lost.

    Its first line names them; the lines may be in any order, the visits of one worker may not
    overlap. ``lost`` is 1 or true for a visit that never pushed; its ``push_s`` may be empty.
    """
    path = Path(path)
    visits = sorted(_visit(line) for line in read_lines(path, "trace", _COLUMNS, ("lost",)))
    if not visits:
        raise DataError(f"{path.name} has no visits below its header: add at least one.")
    for one, two in pairwise(visits):
        ended_s = one.pull_s if one.push_s == np.inf else one.push_s
        if one.worker == two.worker and two.pull_s < ended_s:
            raise DataError(
                f"{path.name}, line {two.line}, column pull_s: worker {two.worker} pulls at "
                f"{two.pull_s} s, before its visit of line {one.line} ends at {ended_s} s; a "
                "worker makes one visit at a time."
            )
    worker, pull_s, push_s, steps, _ = zip(*visits, strict=True)
    ints = np.array(worker, np.int32), np.array(steps, np.int32)
    return Visits(ints[0], np.array(pull_s), np.array(push_s), ints[1])


def _visit(line: Line) -> _Visit:
    worker, pull_s = line.worker(), line.seconds("pull_s")
    steps = line.whole("local_steps", "a number of local steps")
    if not 1 <= steps < MOST_STEPS:
        raise DataError(
            f"{line.where}, column local_steps: {steps} is not from 1 to {MOST_STEPS - 1}; leave "
            "out visits without work."
        )
    word = line.values.get("lost", "").lower()
    if word not in _LOST:
        raise DataError(f"{line.where}, column lost: {word!r:.40} is not 0, 1, true or false.")
    if _LOST[word]:
        return _Visit(worker, pull_s, np.inf, steps, line.number)
    push_s = line.seconds("push_s")
    if push_s < pull_s:
        raise DataError(
            f"{line.where}, column push_s: the visit pushes at {push_s} s, before it pulls at "
            f"{pull_s} s; it must not push earlier than it pulls."
        )
    return _Visit(worker, pull_s, push_s, steps, line.number)
