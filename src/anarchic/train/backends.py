"""Backends on one machine: ``Loop``, the reference, and ``Batched``, the fast one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import final

import numpy as np

from anarchic.core.arrays import copied, zeros
from anarchic.core.local import Held, LocalRule, take_local_steps
from anarchic.core.types import Integers
from anarchic.kernels.switches import lane_threads
from anarchic.train.draws import Draws
from anarchic.train.task import (
    Array,
    Computed,
    Lanes,
    Picks,
    Task,
    begun_rule,
    blank,
    buffers_of,
    column,
    fill,
    held_at_start,
    starts,
)


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
    draws = Draws(lane.seed, lane.worker, lane.visit, steps, in_epochs=work.shuffle)
    picks = task.pick(draws, work.batch)
    held = {name: matrix[0] for name, matrix in held_at_start(task, lane, work.rule).items()}
    visit = take_local_steps(
        begun_rule(task, lane, alone=True),
        starts(task, lane)[0],
        held,
        lr=work.lr,
        gradient=lambda x, k: task.gradient(
            x, worker, {n: pick[0, k] for n, pick in picks.items()}
        ),
        more=lambda done: done < steps,
        buffers=buffers_of(task),
    )
    fill(results, np.array([index]), task, visit.direction, (visit.kept, visit.sent))


@final
class Batched:
    """Every lane has its own start, data, rate and number of steps.

    Lanes are sorted by their number of steps, most first, so that step k runs on a leading slice:
    no step is computed that was not asked for. Lanes share a program where local rule and batch
    size agree; others run in a program of their own. Programs are spread over the task's threads,
    the longest first; what a lane gives does not depend on the thread. A task may bring
    ``lane_visits``, which carries visits of plain SGD out at once instead of step by step.
    """

    def compute(self, task: Task, lanes: Lanes) -> Computed:
        results, threads = blank(task, lanes), task.threads
        programs = [
            (group[some], {name: pick[some] for name, pick in picks.items()})
            for group in _groups(lanes)
            for picks in [_picks(task, lanes, group)]
            for at_once in [_at_once(task, lanes.work[group[0]].rule)]
            for some in _pieces(len(group), task.max_lanes if at_once is None else None)
        ]

        @np.errstate(over="ignore", invalid="ignore")  # a thread has its own; a divergence says so
        def run(program: tuple[Integers, Picks]) -> None:
            some, picks = program
            whole = len(some) == len(lanes) and bool((some[:-1] < some[1:]).all())
            _visits(
                task, lanes if whole else lanes.take(some, task.to_storage), picks, results, some
            )

        alone = threads == 1 or len(programs) == 1
        deque((map if alone else lane_threads(threads, os.getpid()).map)(run, programs), maxlen=0)
        return results


def _groups(lanes: Lanes) -> list[Integers]:
    """Lanes that can share a program, each group with the most local steps first."""
    members: dict[tuple[LocalRule, int, bool], list[int]] = {}
    for lane in np.argsort(-lanes.local_steps, kind="stable").tolist():
        work = lanes.work[lane]
        members.setdefault((work.rule, work.batch, work.shuffle), []).append(lane)
    return [np.array(group) for group in members.values()]


def _picks(task: Task, lanes: Lanes, group: Integers) -> Picks:
    """For all lanes at once: the arrays are small, so drawing for a piece would take as long."""
    seed = lanes.seed if isinstance(lanes.seed, int) else lanes.seed[group]
    steps = int(lanes.local_steps[group[0]])
    work, numbers = lanes.work[group[0]], (lanes.worker[group], lanes.visit[group])
    return task.pick(Draws(seed, *numbers, steps, in_epochs=work.shuffle), work.batch)


def _pieces(lanes: int, most: int | None) -> list[slice]:
    """At most ``most`` lanes each, with long and short visits in all.

    >>> [list(range(5)[piece]) for piece in _pieces(5, 4)]
    [[0, 2, 4], [1, 3]]
    """
    count = 1 if most is None else -(-lanes // most)
    return [slice(first, None, count) for first in range(count)]


def _visits(task: Task, lanes: Lanes, picks: Picks, results: Computed, indices: Integers) -> None:
    rule = begun_rule(task, lanes)
    held = held_at_start(task, lanes, rule)
    start = starts(task, lanes)
    rates = column(task, lanes, [work.lr for work in lanes.work])
    at_once = _at_once(task, rule)
    if at_once is None:
        mean, x = _mean_direction(task, lanes, rule, picks, held, start, rates)
    else:
        mean, x = at_once(start, rates, lanes.local_steps, picks), None
    buffers, finished = buffers_of(task), rule.finish(mean, held)
    fill(results, indices, task, mean if buffers is None else buffers.sent(mean, x), finished)


def _at_once(task: Task, rule: LocalRule) -> Callable[..., Array] | None:
    return getattr(task, "lane_visits", None) if rule.plain else None


def _mean_direction(
    task: Task,
    lanes: Lanes,
    rule: LocalRule,
    picks: Picks,
    held: Held,
    start: Array,
    rates: Array,
) -> tuple[Array, Array]:
    """G_i of every lane, step by step, and where it ends."""
    steps = lanes.local_steps
    x, total, buffers = copied(start), zeros(start), buffers_of(task)
    # How many lanes still have a step k to do.
    active = (steps[:, None] > np.arange(steps[0])).sum(axis=0).tolist()
    for k, n in enumerate(active):
        at_k = {name: pick[:n, k] for name, pick in picks.items()}
        gradient = task.lane_gradients(x[:n], lanes.worker[:n], at_k)
        after = None if buffers is None else buffers.taken_from(gradient)
        holding = {name: matrix[:n] for name, matrix in held.items()}
        before = dict(holding)
        direction = rule.step(gradient, x[:n], start[:n], holding)
        for name, matrix in holding.items():
            if matrix is not before[name]:
                held[name][:n] = matrix
        if buffers is None:
            x[:n] -= rates[:n] * direction
        else:
            x[:n] = buffers.stepped(x[:n], rates[:n], direction, after)
        total[:n] += direction
    return total / column(task, lanes, steps), x
