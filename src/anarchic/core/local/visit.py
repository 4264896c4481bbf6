"""The local steps of one visit, the same for simulated and for live workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anarchic.core.local.rule import Array, Held, LocalRule


@dataclass(frozen=True, eq=False, slots=True)
class LocalResult:
    """What a worker has at the end of a visit; ``kept`` and ``sent`` are the local rule's."""

    direction: Array  # G_i, the mean of the steps' directions
    local_steps: int  # K
    kept: Held
    sent: Held


def take_local_steps(
    rule: LocalRule,
    start: Array,
    held: Held,
    *,
    lr: float,
    gradient: Callable[[Array, int], Array],
    more: Callable[[int], bool],
) -> LocalResult:
    """Take local steps from ``start``, at least one, for as long as ``more(steps taken)`` is true.

        x_{k+1} = x_k - eta_L * d_k,        G_i = (d_0 + ... + d_{K-1}) / K

    ``gradient(x, k)`` is the stochastic gradient of step k, from which ``rule`` makes the direction
    d_k with the vectors that it holds. ``lr`` is eta_L.
    """
    x, total, done = start, 0.0 * start, 0
    while done == 0 or more(done):
        direction = rule.step(gradient(x, done), x, start, held)
        x = x - lr * direction
        total = total + direction
        done += 1
    mean = total / done
    return LocalResult(mean, done, *rule.finish(mean, held))
