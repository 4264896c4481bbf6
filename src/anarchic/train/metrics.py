"""Metrics of one's own: functions of predictions and targets, of any library."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anarchic.core import registry
from anarchic.core.options import says_options
from anarchic.core.reading import printable
from anarchic.data.checks import IGNORED
from anarchic.errors import ConfigError

Array = Any  # of NumPy or torch
Of = Literal["classes", "outputs", "probabilities"]
Function = Callable[..., Any]
NAMES = {"classes": "predicted classes", "outputs": "outputs", "probabilities": "probabilities"}

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
# What the words in a parameter's name say, and how clearly: a clearer word wins.
TARGETS = {
    **dict.fromkeys(("true", "ytrue", "truth", "gt", "groundtruth", "expected", "gold"), 3),
    **dict.fromkeys(("reference", "references", "target", "targets"), 3),
    **dict.fromkeys(("label", "labels", "actual", "actuals", "observed", "test", "ytest"), 2),
    "y": 1,
}
PREDICTIONS = {
    **dict.fromkeys(("pred", "preds", "ypred", "yhat", "hat", "got", "logit", "logits"), 3),
    **dict.fromkeys(("prediction", "predictions", "predicted", "estimate", "estimated"), 3),
    **dict.fromkeys(("output", "outputs", "score", "scores", "prob", "probs", "proba"), 2),
}
SCORES = ("y_score", "y_prob", "y_proba")  # of scikit-learn: the probability of class 1 of two
# Functions that want probabilities without a parameter of such a name.
SCORED = {
    "sklearn": re.compile("log_?loss"),
    "torch": re.compile(
        "auroc|auprc|average_?precision|calibration_?error|roc$|precision_?recall_?curve|"
        "fixed_?(precision|recall)|at_?(specificity|sensitivity)|hinge_?loss|log_?auc|eer$"
    ),
}
TENSORS = ("torch", "torchmetrics", "torcheval")  # libraries whose functions want tensors


@says_options
@dataclass(frozen=True)
class Metric:
    """A function of predictions and targets that returns one number.

    ``of`` says what predictions it gets: the predicted ``"classes"``, the model's ``"outputs"`` as
    they are, or ``"probabilities"``: their softmax, or their sigmoid if there is one output for
    each target. A function for two classes that takes one column gets the probability of class 1.
    None means probabilities for functions that are known to want them (``roc_auc_score``,
    ``BinaryAUROC``), otherwise classes where the targets are classes, and outputs elsewhere. It
    gets NumPy arrays, or torch tensors if it is of torch or torchmetrics or if ``tensors`` is True.
    ``targets_first`` says whether targets are its first argument. None means first if the names
    of its parameters say so (``y_true, y_pred``), otherwise second.
    """

    function: Function
    of: Of | None = None
    tensors: bool | None = None
    targets_first: bool | None = None

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
        given = self._arguments(outputs, targets)
        function, reset = self.function, getattr(self.function, "reset", lambda: None)
        reset()  # an object of torchmetrics adds what it is called with to what it has seen
        try:
            found = function(*given.values())
        except Exception as error:  # whatever a function of somebody else's raises
            of = "'classes'" if "outputs" in given and _zero_or_one(targets) else "..."
            raise ConfigError(
                f"{_shown(function)} raised {type(error).__name__}: {_first_line(error)} It was "
                f"called with {' and '.join(map(_described, given, given.values()))}; "
                f"Metric(function, of={of}, tensors=..., targets_first=...) says what it gets."
            ) from error
        reset()
        try:
            return float(found)
        except (TypeError, ValueError, RuntimeError) as error:
            shape = getattr(found, "shape", None)
            what = f"a {type(found).__name__}" + (f" of shape {tuple(shape)}" if shape else "")
            raise ConfigError(
                f"{_shown(function)} returned {what}: let it return one number, such as the mean."
            ) from error

    def _arguments(self, outputs: Array, targets: Array) -> dict[str, Array]:
        """What the function is called with, in this order, by what it is."""
        axis = class_axis(outputs, targets)
        if axis is not None:  # also the labels of sequences, as one long list
            outputs, targets = _listed(outputs, targets, axis)
        of = self.of or _usual(self.function, axis, targets)
        predicted = _predictions(outputs, targets, of, axis)
        if of == "probabilities":
            if axis is not None and outputs.shape[-1] == 2 and _takes_one_column(self.function):
                predicted = predicted[:, 1]
            if _of(self.function, ("torchmetrics",)) and _zero_or_one(targets):
                targets = _as_tensor(targets).long()  # it takes no labels of floats
        wants = _of(self.function, TENSORS) if self.tensors is None else self.tensors
        shape = _as_tensor if wants else _as_numpy
        given = {NAMES[of]: shape(predicted), "targets": shape(targets)}
        first = _targets_first(self.function) if self.targets_first is None else self.targets_first
        return dict(reversed(given.items())) if first else given


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
        except ConfigError as error:
            raise ConfigError(f"The metric {name!r}: {error}") from error.__cause__
        except Exception as error:  # what it gets cannot be made of these
            raise ConfigError(
                f"The metric {name!r} cannot be given outputs of shape {tuple(outputs.shape)} and "
                f"targets of shape {tuple(targets.shape)} ({type(error).__name__}: "
                f"{_first_line(error).rstrip('.')}): say what it gets, Metric(function, "
                "of='outputs')."
            ) from error
        found[name] = value if np.isfinite(value) else float("nan")
    return found


def _usual(function: Function, axis: int | None, targets: Array) -> Of:
    """What a function gets that nothing was said of."""
    if _wants_scores(function) and (axis is not None or _zero_or_one(targets)):
        return "probabilities"
    return "outputs" if axis is None else "classes"


def _predictions(outputs: Array, targets: Array, of: Of, axis: int | None) -> Array:
    if of == "outputs":
        return outputs
    if axis is None and _one_each(outputs, targets):
        outputs = outputs.reshape(targets.shape)
        if of == "classes":
            return (outputs > 0) * 1
        return _sigmoid(outputs) if isinstance(outputs, np.ndarray) else outputs.sigmoid()
    if of == "classes":
        return outputs.argmax(-1)
    if isinstance(outputs, np.ndarray):
        powers = np.exp(outputs - outputs.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
    return outputs.softmax(-1)


def _one_each(outputs: Array, targets: Array) -> bool:
    """Whether each output is for a target of its own: one column, or several labels per sample.

    Several targets that sum to 1 in each row are instead the shares of classes.
    """
    if math.prod(outputs.shape) != math.prod(targets.shape):
        return False
    if targets.ndim < 2 or targets.shape[-1] == 1:
        return True
    return not bool((abs(targets.sum(-1) - 1) < 1e-6).all())


def _sigmoid(outputs: NDArray[Any]) -> NDArray[Any]:
    small = np.exp(-np.abs(outputs))  # never overflows
    found: NDArray[Any] = np.where(outputs >= 0, 1, small) / (1 + small)
    return found


def _zero_or_one(targets: Array) -> bool:
    return bool(((targets == 0) | (targets == 1)).all())


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


def _of(function: Function, libraries: Collection[str]) -> bool:
    """Whether it, or the class that it is an object of, comes from one of the libraries."""
    function, _ = _inner(function)
    homes = [getattr(function, "__module__", None), *(c.__module__ for c in type(function).__mro__)]
    return any(str(home).split(".")[0] in libraries for home in homes)


def _inner(function: Function) -> tuple[Function, dict[str, Any]]:
    """The function in a ``partial``, and the options that it has there."""
    options: dict[str, Any] = {}
    while isinstance(function, partial):
        options = {**function.keywords, **options}
        function = function.func
    return function, options


def _called(function: Function) -> list[str]:
    """Its name in small letters; of an object, the names of its classes."""
    inner, _ = _inner(function)
    names = [getattr(inner, "__name__", ""), *(each.__name__ for each in type(inner).__mro__)]
    return [name.lower() for name in names]


def _wants_scores(function: Function) -> bool:
    if any(name in SCORES for name in _parameters(function)):
        return True
    wanted = [SCORED["torch"]] if _of(function, TENSORS) else []
    wanted += [SCORED["sklearn"]] if _of(function, ("sklearn",)) else []
    return any(each.search(name) for each in wanted for name in _called(function))


def _takes_one_column(function: Function) -> bool:
    """Whether it takes the probability of class 1 where there are two classes."""
    if any(name in SCORES for name in _parameters(function)):
        return True
    binary = any(name.startswith("binary") for name in _called(function))
    return _of(function, TENSORS) and (binary or _inner(function)[1].get("task") == "binary")


def _parameters(function: Function) -> list[str]:
    """The names of its first two arguments; of an object also by its ``forward`` or ``update``."""
    for each in (function, getattr(function, "forward", None), getattr(function, "update", None)):
        try:
            found = inspect.signature(each).parameters.values() if callable(each) else ()
        except (TypeError, ValueError):  # a function of C has none
            continue
        names = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if len(names) > 1:
            return names[:2]
    return []


def _targets_first(function: Function) -> bool:
    """Whether the names of its parameters say so; where both are of targets, the clearer one is."""
    names = _parameters(function)
    if len(names) < 2:
        return False
    first, second = map(_says, names)
    if first > 0:
        return second <= first
    return first == 0 and second < 0


def _says(name: str) -> int:
    """How clearly a name says targets (above 0) or predictions (below 0)."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    found = [max((of.get(w.lower(), 0) for w in words), default=0) for of in (TARGETS, PREDICTIONS)]
    return 0 if found[0] == found[1] else found[0] if found[0] > found[1] else -found[1]


def _shown(function: Function) -> str:
    inner, _ = _inner(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _described(name: str, array: Array) -> str:
    kind = "an array" if isinstance(array, np.ndarray) else "a tensor"
    dtype = str(array.dtype).removeprefix("torch.")
    return f"{name} ({kind} of {dtype}, shape {tuple(array.shape)})"


def _first_line(error: Exception) -> str:
    line = printable((str(error).strip().splitlines() or [""])[0], most=200)
    return line if line.endswith(".") else f"{line}."
