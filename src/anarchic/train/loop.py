"""The reference backend: one visit after another, one step after another."""

from __future__ import annotations

from typing import final

import numpy as np

from anarchic.core.local import take_local_steps
from anarchic.train.draws import Draws
from anarchic.train.task import Computed, Lanes, Task, blank, fill, held_at_start


@final
class Loop:
    """Reads like the worker's code of the paper. Every other backend must agree with it."""

    def compute(self, task: Task, lanes: Lanes) -> Computed:
        results = blank(task, lanes)
        for lane in range(len(lanes)):
            _visit(task, lanes.take(np.array([lane])), results, lane)
        return results


def _visit(task: Task, lane: Lanes, results: Computed, index: int) -> None:
    work, worker, steps = lane.work[0], int(lane.worker[0]), int(lane.local_steps[0])
    picks = task.pick(Draws(lane.seed, lane.worker, lane.visit, steps), work.batch)
    held = {name: matrix[0] for name, matrix in held_at_start(task, lane, work.rule).items()}
    visit = take_local_steps(
        work.rule,
        task.put(lane.snapshots[int(lane.snapshot[0])].params),
        held,
        lr=work.lr,
        gradient=lambda x, k: task.gradient(
            x, worker, {n: pick[0, k] for n, pick in picks.items()}
        ),
        more=lambda done: done < steps,
    )
    fill(results, np.array([index]), task, visit.direction, (visit.kept, visit.sent))
