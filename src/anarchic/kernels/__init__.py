"""Faster forms of what core, models and train do. Everything works without this room.

Each form has a twin: plain NumPy or PyTorch code that does the same. ``find`` gives a form by its
name, or None where a package that it needs is not installed; the caller then uses the twin.
``faster`` puts a form before a plain function of the same name. Forms import nothing of this
project but ``errors``: whatever else they need is passed to them.

Beside the forms there are the pieces that they are made of (``compiled``, ``loops``, ``chunks``,
``tiles``) and ``switches``, which sets what holds for the whole process for a limited time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
Array = Any  # a NumPy array or a torch tensor
Shapes = Mapping[str, tuple[int, ...]]  # of the tensors in a flat vector, in their order there


class LaneGradients(Protocol):
    """Gradients of the mean cross-entropy over lanes: visits with parameters and data of their own.

    It takes ``params`` (lanes, dim), ``x`` (lanes, batch, ...) and ``y`` (lanes, batch), and gives
    (lanes, dim). ``precision`` is "ieee", "tf32" or "bf16".
    """

    def __call__(
        self, params: Array, x: Array, y: Array, *, shapes: Shapes, precision: Any
    ) -> Array: ...


@dataclass(frozen=True)
class Form:
    """A fast form: what it is, what it needs, and the plain code that does the same."""

    form: str  # module:name in this room
    twin: str  # module:name of the plain code; a module alone, where that is a private part of it
    needs: tuple[str, ...]  # packages beside NumPy


FORMS = {
    # Folding updates, for core.
    "add_scaled": Form("folds:add_scaled", "anarchic.core.arrays:add_scaled", ()),
    "norms": Form("folds:norms", "anarchic.core.arrays:norms", ()),
    "norms_at_most": Form("folds:norms_at_most", "anarchic.core.arrays:norms_at_most", ()),
    "exchange": Form("folds:exchange", "anarchic.core.rules.table:exchange", ()),
    "take_away": Form("folds:take_away", "anarchic.core.rules.table:take_away", ()),
    "stepped": Form("folds:stepped", "anarchic.core.steps:stepped", ()),
    # Drawing and gathering batches, for train.
    "philox_words": Form("loops:philox_words", "anarchic.train.draws:philox", ("numba",)),
    "pick_samples_cuda": Form(
        "picks_cuda:pick_samples", "anarchic.train.draws:Draws", ("torch", "triton")
    ),
    "pick_crops_cuda": Form(
        "picks_cuda:pick_crops", "anarchic.train.torch_data:pick_crops", ("torch", "triton")
    ),
    "crop_and_flip_cuda": Form(
        "crops_cuda:crop_and_flip", "anarchic.train.torch_data:crop_and_flip", ("torch", "triton")
    ),
    # Gradients: a model names its form by ``kernels``; "_cuda" or "_cpu" is added, where that is.
    "cnn_cuda": Form(
        "cnn_cuda:lane_gradients", "anarchic.train.engines:Objective", ("torch", "triton")
    ),
    "lstm": Form("lstm_lanes:lane_gradients", "anarchic.train.engines:Objective", ("torch",)),
    "lstm_cpu": Form("lstm_cpu:lane_gradients", "anarchic.train.engines:Objective", ("torch",)),
    "lstm_cuda": Form(
        "lstm_cuda:lane_gradients", "anarchic.train.engines:Objective", ("torch", "triton")
    ),
    "lstm_states": Form("lstm_lanes:fused_states", "anarchic.models.lstm:LstmCells", ("torch",)),
    # Whole visits of plain SGD, and local steps recorded as CUDA graphs.
    "softmax_visits": Form(
        "logistic_sparse:sparse", "anarchic.train.backends:Batched", ("numba",)
    ),
    "recorded_cuda": Form("recorded:Recorded", "anarchic.train.engines:Objective", ("torch",)),
}  # fmt: skip


@cache
def find(name: str) -> Callable[..., Any] | None:
    """The form of that name; None if there is none, or if a package that it needs is missing."""
    known = FORMS.get(name)
    if known is None or any(find_spec(package) is None for package in known.needs):
        return None
    module, _, attribute = known.form.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found


def faster(plain: Callable[P, R]) -> Callable[P, R]:
    """``plain``, which is the twin, or the form of its name where that is given a NumPy array."""

    @wraps(plain)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        form = find(plain.__name__) if isinstance(args[0], np.ndarray) else None
        return (form or plain)(*args, **kwargs)

    return call


def slices_of(shapes: Shapes) -> dict[str, slice]:
    """Where the tensors of a model lie in its flat vector: one after another, in their order.

    >>> slices_of({"bias": (2,), "weight": (2, 3)})
    {'bias': slice(0, 2, None), 'weight': slice(2, 8, None)}
    """
    found, start = {}, 0
    for name, shape in shapes.items():
        found[name] = slice(start, start + prod(shape))
        start += prod(shape)
    return found


def length_of(shapes: Shapes) -> int:
    return sum(map(prod, shapes.values()))
