"""What a model is worth on samples that it was not trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from anarchic.data.checks import IGNORED
from anarchic.train.engines import Loss
from anarchic.train.metrics import Metric, class_axis, measure


def evaluated(
    pairs: Iterable[tuple[Tensor, Tensor]], loss: Loss, metrics: Mapping[str, Metric]
) -> dict[str, float]:
    """The mean loss, the accuracy where targets are labels that outputs have scores for, metrics.

    ``pairs`` are outputs and targets, batch by batch. Of sequences every label counts, except those
    to be ignored (-100).
    """
    sums: Any = None
    kept: list[tuple[Tensor, Tensor]] = []
    labelled = True
    for found, wanted in pairs:
        right, counted = _right(found, wanted)
        labelled = right is not None
        if sums is None:
            sums = torch.zeros(3, dtype=torch.float64, device=found.device)
        sums[0] += 0 if right is None else right
        sums[1] += loss(found, wanted) * counted
        sums[2] += counted
        if metrics:
            kept.append((found, wanted))
    accuracy, mean = (sums[:2] / sums[2]).tolist()
    told = {"accuracy": accuracy, "loss": mean} if labelled else {"loss": mean}
    if kept and isfinite(mean):  # otherwise the run has diverged, which is said elsewhere
        told |= measure(metrics, *map(torch.cat, zip(*kept, strict=True)))
    return told


def _right(outputs: Tensor, y: Tensor) -> tuple[Tensor | None, int | Tensor]:
    """How many labels the outputs get right, if there are labels, and how many targets count."""
    axis = class_axis(outputs, y)
    if axis is None:
        return None, len(y)
    hits = outputs.argmax(axis) == y
    return hits.sum(), len(y) if y.ndim == 1 else (y != IGNORED).sum()
