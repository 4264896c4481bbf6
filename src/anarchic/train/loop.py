"""The reference backend: one visit after another, one step after another."""

from __future__ import annotations

from typing import final

import numpy as np

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
    start = task.put(lane.snapshots[int(lane.snapshot[0])].params)
    x, total = start, 0.0 * start
    for k in range(steps):
        gradient = task.gradient(x, worker, {name: pick[0, k] for name, pick in picks.items()})
        direction = work.rule.step(gradient, x, start, held)
        x = x - work.lr * direction
        total = total + direction
    mean = total / steps  # G_i
    fill(results, np.array([index]), task, mean[None], work.rule.finish(mean[None], held))
