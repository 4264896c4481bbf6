"""The exponent of a power law: how the cost of reaching a target falls with m, K or M."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from anarchic.errors import ConfigError
from anarchic.stats.inference import Floats, scipy_stats


@final
@dataclass(frozen=True)
class Exponent:
    """The slope of log cost over log size, with Student's interval where there are repeats.

    -1 is a linear speed-up: twice the size, half the cost. Without repeats the interval is None.
    """

    value: float
    low: float | None
    high: float | None
    level: float
    sizes: tuple[float, ...]
    costs: tuple[float, ...]  # geometric means over the repeats

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def exponent(costs: Mapping[float, Sequence[float]], *, level: float = 0.95) -> Exponent:
    """Fit cost = c * size^p by least squares on logarithmic axes; ``costs`` are by size, repeated.

    The slope is a weighted sum of the means of log cost, one per size. With two repeats or more of
    each size it has an interval: the variances of these means, each from its own repeats, and
    Student's t with Welch's and Satterthwaite's degrees of freedom. The sizes are taken to vary
    independently; where runs of the same seed vary together the interval is too wide.

    >>> exponent({1: [100.0], 2: [50.0], 4: [25.0]}).value
    -1.0
    """
    found = {float(size): np.asarray(each, float) for size, each in sorted(costs.items())}
    if len(found) < 2:
        raise ConfigError(f"An exponent needs at least 2 sizes, got {sorted(costs)}.")
    if not 0 < level < 1:
        raise ConfigError(f"A confidence level is between 0 and 1, such as 0.95, got {level}.")
    for size, each in found.items():
        if not (size > 0 and len(each) and np.isfinite(each).all() and (each > 0).all()):
            raise ConfigError(
                f"Sizes and costs must be positive and finite, got size {size:g} with costs "
                f"{each.tolist()}."
            )
    x = np.log(list(found))
    logs = [np.log(each) for each in found.values()]
    away = x - x.mean()
    weights = away / (away @ away)
    value = round(float(weights @ [each.mean() for each in logs]), 12)
    means = tuple(float(np.exp(each.mean())) for each in logs)
    half = None if min(map(len, logs)) < 2 else _half_width(weights, logs, level)
    low, high = (None, None) if half is None else (value - half, value + half)
    return Exponent(value, low, high, level, tuple(found), means)


def _half_width(weights: Floats, logs: Sequence[Floats], level: float) -> float:
    """Half the width of the interval of a weighted sum of means."""
    free = np.array([len(each) - 1 for each in logs])
    parts = weights**2 * [each.var(ddof=1) / len(each) for each in logs]
    if not (total := float(parts.sum())):
        return 0.0
    degrees = total**2 / (parts**2 / free).sum()
    return float(scipy_stats().t.ppf((1 + level) / 2, degrees) * total**0.5)
