"""The exponent of a power law: how the cost of reaching a target falls with m, K or M."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from anarchic.errors import ConfigError

RESAMPLES = 9_999


@final
@dataclass(frozen=True)
class Exponent:
    """The slope of log cost over log size, with a bootstrap interval over the repeats.

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


def exponent(
    costs: Mapping[float, Sequence[float]], *, level: float = 0.95, seed: int = 0
) -> Exponent:
    """Fit cost = c * size^p by least squares on logarithmic axes; ``costs`` are by size, repeated.

    The repeats of each size are resampled, so two sizes or more and two repeats of each give an
    interval.

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
    value = round(float(_slopes(x, np.array([[each.mean() for each in logs]]))[0]), 12)
    means = tuple(float(np.exp(each.mean())) for each in logs)
    if min(map(len, logs)) < 2:
        return Exponent(value, None, None, level, tuple(found), means)
    rng = np.random.default_rng(seed)
    drawn = [each[rng.integers(0, len(each), (RESAMPLES, len(each)))].mean(axis=1) for each in logs]
    slopes = _slopes(x, np.stack(drawn, axis=1))
    low, high = np.quantile(slopes, ((1 - level) / 2, (1 + level) / 2))
    return Exponent(value, float(low), float(high), level, tuple(found), means)


def _slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slopes of rows of y over x."""
    away = x - x.mean()
    return np.asarray((y @ away) / (away @ away))
