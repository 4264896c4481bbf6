"""Metrics of one's own: functions of predictions and targets, of any library."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anarchic.core import registry
from anarchic.data.checks import IGNORED
from anarchic.errors import ConfigError

Array = Any  # of NumPy or torch
Of = Literal["classes", "outputs", "probabilities"]
Function = Callable[..., Any]

COLUMNS = ("round", "virtual_s", "updates", "local_steps", "train_seconds", "test_samples")
TAKEN = (
    *COLUMNS,
    "accuracy",
    "loss",
    "val_accuracy",
    "val_loss",
    "workers_mean",
    "workers_worst_tenth",
    "workers_spread",
)
# Names that say that a function takes the targets first, as those of scikit-learn do.
TARGETS = ("y_true", "y", "true", "truth", "target", "targets", "label", "labels", "actual")
TENSORS = ("torch", "torchmetrics", "torcheval")  # libraries whose functions want tensors


@dataclass(frozen=True)
class Metric:
    """A function of predictions and targets that returns one number.

    ``of`` says what predictions it gets: the predicted ``"classes"``, the model's ``"outputs"`` as
    they are, or ``"probabilities"``, their softmax. None means classes where the targets are
    classes, and outputs otherwise. It gets NumPy arrays, or torch tensors if it is of torch or
    torchmetrics or if ``tensors`` is True. Targets come second, or first if the first parameter is
    called ``y_true`` (as in scikit-learn), ``targets`` or the like.
    """

    function: Function
    of: Of | None = None
    tensors: bool | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(
                f"A metric is a function of predictions and targets, got {self.function!r}."
            )
        if self.of not in (None, "classes", "outputs", "probabilities"):
            raise ConfigError(
                f"A metric is of classes, outputs or probabilities, got of={self.of!r}."
            )

    def __call__(self, outputs: Array, targets: Array) -> float:
        """Its value on the model's outputs for all samples."""
        axis = class_axis(outputs, targets)
        if axis is not None:  # also the labels of sequences, as one long list
            outputs, targets = _listed(outputs, targets, axis)
        predicted = _predictions(outputs, self.of or ("outputs" if axis is None else "classes"))
        wants = _of_torch(self.function) if self.tensors is None else self.tensors
        pair = tuple((_as_tensor if wants else _as_numpy)(each) for each in (predicted, targets))
        function, reset = self.function, getattr(self.function, "reset", lambda: None)
        reset()  # an object of torchmetrics adds what it is called with to what it has seen
        found = function(*(reversed(pair) if _targets_first(function) else pair))
        reset()
        return float(found)


def class_axis(outputs: Array, targets: Array) -> int | None:
    """Where outputs have a score for each class; None where the targets are not labels.

    That is the last dimension, or the second, as in torch's cross_entropy.
    """
    if "float" in str(targets.dtype) or outputs.ndim != targets.ndim + 1:
        return None
    axis = -1 if outputs.shape[:-1] == targets.shape else 1
    return axis if outputs.shape[axis] > 1 else None


def check_metrics(
    metrics: Mapping[str, Metric | Function | str] | None,
) -> dict[str, Metric]:
    """Metrics by name, from functions, ``Metric`` or ``module:name``."""
    found = {}
    for name, given in (metrics or {}).items():
        if not re.fullmatch(r"[A-Za-z][\w.-]*", str(name)) or name in TAKEN:
            raise ConfigError(
                f"A metric needs a name of letters, digits, _ . and - that is not taken "
                f"({', '.join(TAKEN)}), got {name!r}."
            )
        function = registry.load(given) if isinstance(given, str) else given
        found[name] = function if isinstance(function, Metric) else Metric(function)
    return found


def measure(metrics: Mapping[str, Metric], outputs: Array, targets: Array) -> dict[str, float]:
    """The value of every metric; NaN where it is not a finite number."""
    found = {}
    for name, metric in metrics.items():
        try:
            value = metric(outputs, targets)
        except Exception as error:  # whatever a function of somebody else's raises
            raise ConfigError(
                f"The metric {name!r} failed on outputs {tuple(outputs.shape)} and targets "
                f"{tuple(targets.shape)} ({type(error).__name__}: {_first_line(error)}): it must "
                "return one number. Metric(function, of=..., tensors=...) says what it gets."
            ) from error
        found[name] = value if np.isfinite(value) else float("nan")
    return found


def _predictions(outputs: Array, of: Of) -> Array:
    if of == "outputs":
        return outputs
    if of == "classes":
        return outputs.argmax(-1)
    if isinstance(outputs, np.ndarray):
        powers = np.exp(outputs - outputs.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
    return outputs.softmax(-1)


def _listed(outputs: Array, targets: Array, axis: int) -> tuple[Array, Array]:
    """Outputs (labels, classes) and targets (labels,), without labels to be ignored."""
    if axis != -1:
        outputs = outputs.movedim(axis, -1)  # of torch: NumPy's are (samples, classes)
    outputs, targets = outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)
    counted = targets != IGNORED
    return (outputs, targets) if counted.all() else (outputs[counted], targets[counted])


def _as_numpy(array: Array) -> NDArray[Any]:
    if isinstance(array, np.ndarray):
        return array
    found: NDArray[Any] = array.detach().cpu().numpy()
    return found


def _as_tensor(array: Array) -> Any:
    import torch

    return torch.as_tensor(array).cpu()


def _of_torch(function: Function) -> bool:
    """Whether it, or the class that it is an object of, comes from a library of tensors."""
    while isinstance(function, partial):
        function = function.func
    homes = [getattr(function, "__module__", None), *(c.__module__ for c in type(function).__mro__)]
    return any(str(home).split(".")[0] in TENSORS for home in homes)


def _targets_first(function: Function) -> bool:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C has none
        return False
    return bool(names) and names[0] in TARGETS


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
