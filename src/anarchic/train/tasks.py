"""Tasks by the names of their models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from anarchic.core.types import Integers
from anarchic.data.dataset import Dataset
from anarchic.models import make
from anarchic.train.task import DataTask


def make_task(
    model: str,
    data: Dataset,
    parts: Sequence[Integers],
    *,
    seed: int = 0,
    device: str = "cpu",
    dtype: Literal["float32", "float64"] = "float32",
    augment: bool | None = None,
    compiled: bool = True,
    **on_gpu: Any,
) -> DataTask:
    """A fresh model of that name on data dealt to workers, the same for the same seed.

    Softmax regression on a CPU needs no torch, unless images are cropped and flipped. ``on_gpu``
    are ``precision`` and ``graphs`` of ``TorchTask``.
    """
    crops = data.augment == "crop-flip" if augment is None else augment
    if model == "logistic" and device == "cpu" and not crops:
        from anarchic.train.logistic_task import LogisticTask

        return LogisticTask(data, parts, dtype=dtype, compiled=compiled)
    module = make(model, data, seed=seed)
    from anarchic.train.torch_task import TorchTask

    return TorchTask(module, data, parts, device=device, dtype=dtype, augment=augment, **on_gpu)
