"""Lanes of several runs as one batch, and what each run gets back of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anarchic.core.arrays import zeros
from anarchic.core.types import Matrix
from anarchic.train.task import Computed, Lanes


def join(parts: Sequence[Lanes], firsts: Sequence[int]) -> Lanes:
    """Lanes of several runs as one, for a joint task where their workers begin at ``firsts``."""
    snapshots = [snapshot for lanes in parts for snapshot in lanes.snapshots]
    begin = np.cumsum([0, *(len(lanes.snapshots) for lanes in parts[:-1])]).tolist()
    seeds = [np.broadcast_to(np.asarray(lanes.seed, np.int64), len(lanes)) for lanes in parts]
    return Lanes(
        np.concatenate(seeds),
        np.concatenate([lanes.worker + first for lanes, first in zip(parts, firsts, strict=True)]),
        np.concatenate([lanes.visit for lanes in parts]),
        np.concatenate([lanes.local_steps for lanes in parts]),
        [work for lanes in parts for work in lanes.work],
        snapshots,
        np.concatenate([lanes.snapshot + at for lanes, at in zip(parts, begin, strict=True)]),
        _kept(parts),
    )


def _kept(parts: Sequence[Lanes]) -> dict[str, Matrix]:
    """The vectors that the lanes' workers keep, zero where a run's local rule keeps none."""
    names = {name for lanes in parts for name in lanes.kept}
    like, count = parts[0].snapshots[0].params, sum(map(len, parts))
    joint = {name: zeros(like, (count, len(like))) for name in names}
    first = 0
    for lanes in parts:
        for name, matrix in lanes.kept.items():
            joint[name][first : first + len(lanes)] = matrix
        first += len(lanes)
    return joint


def part_of(results: Computed, lanes: Lanes, first: int) -> Computed:
    """The results of one run: its rows, and the vectors that its own local rules know."""
    rows = slice(first, first + len(lanes))
    rules = {work.rule for work in lanes.work}
    return Computed(
        results.directions[rows],
        {name: results.extras[name][rows] for rule in rules for name in rule.shares},
        {name: results.kept[name][rows] for rule in rules for name in rule.keeps},
    )
