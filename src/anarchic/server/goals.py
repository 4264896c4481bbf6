"""What an operator wants of a run: metrics, which way is better, and when it is enough."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

from anarchic.callbacks.best import LOW
from anarchic.errors import ConfigError

_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True)
class EvaluationMetric:
    """A number of an evaluation by its name, and whether larger is better."""

    name: str
    largest: bool

    @property
    def better(self) -> str:
        return "max" if self.largest else "min"

    def value(self, number: float) -> float:
        """Larger is better, whatever the metric."""
        return number if self.largest else -number


def metric(text: str, option: str) -> EvaluationMetric:
    """``accuracy``, ``loss``, or ``score:min`` where the name does not tell which is better."""
    name, colon, way = text.strip().partition(":")
    if not name or (colon and way not in ("max", "min")):
        raise ConfigError(
            f"{option} takes the name of a metric, such as accuracy, or score:min if less is "
            f"better; got {text!r}."
        )
    less = way == "min" if colon else name.endswith(LOW)
    return EvaluationMetric(name, not less)


@dataclass(frozen=True)
class Target:
    """The value of a metric at which a run may end."""

    metric: EvaluationMetric
    goal: float

    def reached(self, number: float) -> bool:
        return self.metric.value(number) >= self.metric.value(self.goal)


def target(text: str) -> Target:
    """``accuracy=0.95``, or ``score:min=3``."""
    name, equals, number = text.partition("=")
    try:
        goal = float(number)
    except ValueError:
        goal = float("nan")
    if not (equals and isfinite(goal)):
        raise ConfigError(f"--target takes METRIC=VALUE, such as accuracy=0.95; got {text!r}.")
    return Target(metric(name, "--target"), goal)


def span_s(text: str, option: str) -> float:
    """``90d``, ``12h`` or ``3600`` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if found is None or not float(found[1]) > 0:
        raise ConfigError(
            f"{option} takes a time such as 90d, 12h or 30m (w, d, h, m, s); got {text!r}."
        )
    return float(found[1]) * _SPANS[found[2] or "s"]
