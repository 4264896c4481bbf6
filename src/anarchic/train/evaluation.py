"""What a model is worth on samples that it was not trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from anarchic.data.checks import IGNORED
from anarchic.train.engines import Loss, cross_entropy
from anarchic.train.metrics import Metric, class_axis, measure


def evaluated(
    pairs: Iterable[tuple[Tensor, Tensor]], loss: Loss, metrics: Mapping[str, Metric]
) -> dict[str, float]:
    """The loss, the accuracy where targets are labels that outputs have scores for, metrics.

    ``pairs`` are outputs and targets, batch by batch. Of sequences every label counts, except those
    to be ignored (-100). Of our ``cross_entropy`` the mean over batches is that over samples; any
    other loss, which may be a sum or weight classes, is computed once, of all outputs.
    """
    sums: Any = None
    kept: list[tuple[Tensor, Tensor]] = []
    labelled, by_batch = True, loss is cross_entropy
    for found, wanted in pairs:
        right, counted = _right(classes_last(found, wanted, loss), wanted)
        labelled = right is not None
        if sums is None:
            sums = torch.zeros(3, dtype=torch.float64, device=found.device)
        sums[0] += 0 if right is None else right
        sums[1] += loss(found, wanted) * counted if by_batch else 0
        sums[2] += counted
        if metrics or not by_batch:
            kept.append((found, wanted))
    accuracy, mean = (sums[:2] / sums[2]).tolist()
    outputs, targets = map(torch.cat, zip(*kept, strict=True)) if kept else (sums, sums)
    if not by_batch:
        mean = float(loss(outputs, targets))
    told = {"accuracy": accuracy, "loss": mean} if labelled else {"loss": mean}
    if metrics and isfinite(mean):  # otherwise the run has diverged, which is said elsewhere
        told |= measure(metrics, classes_last(outputs, targets, loss), targets)
    return told


def classes_last(outputs: Any, targets: Any, loss: Loss) -> Any:
    """Outputs with their classes in the last dimension, where their shape leaves open where.

    Our ``cross_entropy`` takes them there; with another loss they are in the second, as in torch's.
    """
    shape = outputs.shape
    if loss is cross_entropy or len(shape) < 3:
        return outputs
    both = shape[:-1] == targets.shape == (*shape[:1], *shape[2:])
    return outputs.movedim(1, -1) if both else outputs


def _right(outputs: Tensor, y: Tensor) -> tuple[Tensor | None, int | Tensor]:
    """How many labels the outputs get right, if there are labels, and how many targets count."""
    axis = class_axis(outputs, y)
    if axis is None:
        return None, len(y)
    hits = outputs.argmax(axis) == y
    return hits.sum(), len(y) if y.ndim == 1 else (y != IGNORED).sum()
