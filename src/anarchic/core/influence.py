"""How far an update can move the model, as a rule folds it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from anarchic.core.rule import Rule

# Of (local_lr, local_steps, staleness, norm, weight): the length of an update as it came, which is
# what ``Clip`` and ``Guard`` look at, and as it was folded, after them and after discounts.
LengthsOf = Callable[[float, int, int, float, float], tuple[float, float]]


def lengths_of(rule: Rule[Any]) -> LengthsOf:
    """The function for the updates of a rule, as it folds them.

    ``norm`` is that of local_lr * direction, ``weight`` what a guard multiplied the update by.

    >>> from anarchic.core.rules import AfaCd
    >>> from anarchic.core.wrappers import StalenessDiscount
    >>> lengths_of(StalenessDiscount(AfaCd(m=2), power=1.0))(0.1, 5, 3, 8.0, 0.5)
    (8.0, 1.0)
    """
    scale, folded_scale = rule.scale, rule.folded_scale

    def lengths(
        local_lr: float, local_steps: int, staleness: int, norm: float, weight: float
    ) -> tuple[float, float]:
        direction = norm / local_lr
        came = scale(local_lr, local_steps) * direction
        folded = folded_scale(local_lr * weight, local_steps, staleness, direction) * direction
        if came < inf and folded < inf:
            return came, folded
        return norm, 0.0  # a rate may be the smallest number there is

    return lengths
