"""scikit-learn estimators that learn by ``partial_fit``: their weights travel.

with visit(worker, SGDClassifier(), classes=range(10)) as v:
    v.estimator.partial_fit(x, y)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, final

import numpy as np
from numpy.typing import NDArray

from anarchic.bridges import xgboost
from anarchic.bridges.visit import Tensors, Visit
from anarchic.bridges.visit import write_first_model as write_tensors
from anarchic.core.options import says_options
from anarchic.core.types import Layout
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from anarchic.worker import Worker

LINEAR, NETWORK = ("coef_", "intercept_"), ("coefs_", "intercepts_")
_STILL = 1e-30  # a rate at which a step changes no float


@final
class EstimatorVisit(Visit):
    """A visit in which ``estimator`` is trained, by ``partial_fit`` or any other way."""

    def __init__(self, worker: Worker, estimator: Any, lr: float | None) -> None:
        super().__init__(worker, self._tensors, self._set, lr=lr)
        self.estimator = estimator

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        super().__exit__(kind, *error)
        told = str(error[0]) if kind is TypeError else ""
        if "'dataset' has incorrect type" in told:  # of compiled code, for one type of floats
            held = next(iter(weights(self.estimator).values())).dtype.name
            other = "float32" if held == "float64" else "float64"
            raise ConfigError(
                f"{type(self.estimator).__name__} holds its weights as {held} and was given data "
                f"of another type: give x.astype({held!r}), or make a new estimator and call "
                f"visit(..., dtype={other!r})."
            ) from cast(BaseException, error[0])

    def _tensors(self) -> Tensors:
        return weights(self.estimator)

    def _set(self, tensors: Tensors) -> None:
        for name, array in weights(self.estimator).items():
            array[...] = tensors[name]  # in place: an optimiser of the estimator holds them too


@says_options
def visit(
    worker: Worker,
    estimator: Any,  # scikit-learn has no types
    *,
    classes: Iterable[Any] | None = None,
    lr: float | None = None,
    dtype: Literal["float32", "float64"] = "float64",
) -> EstimatorVisit:
    """A visit that pulls into the estimator and pushes what ``partial_fit`` has changed.

    ``classes`` are all those that any worker has, the same at every worker; an estimator that was
    fitted knows them already. The number of features is that of the server's model. Linear
    estimators take data of one type of floats: ``dtype`` says which, before they are first fitted.
    """
    if not _fitted(estimator):
        _check_kind(estimator)
        worker.pull(retry=worker.connection.visit_retry)
        prepare(estimator, features=_features(worker.layout), classes=classes, dtype=dtype)
    elif classes is not None:
        _check_classes(estimator, classes)
    weights(estimator)  # or refuse it now
    return EstimatorVisit(worker, estimator, lr)


def write_first_model(
    path: Path | str, estimator: Any, *, features: int, classes: Iterable[Any] | None = None
) -> Layout:
    """Write the estimator's first weights for ``anarchic serve --init``: zeros if it is linear."""
    if not _fitted(estimator):
        prepare(estimator, features=features, classes=classes)
    return write_tensors(path, weights(estimator))


def prepare(
    estimator: Any,
    *,
    features: int,
    classes: Iterable[Any] | None = None,
    dtype: Literal["float32", "float64"] = "float64",
) -> None:
    """Give an estimator that was never fitted its first weights, without training it."""
    from sklearn.base import is_classifier

    _check_kind(estimator)
    named: dict[str, Any] = {}
    targets: NDArray[Any] = np.zeros(1)
    if is_classifier(estimator):
        if classes is None:
            raise ConfigError(
                f"{type(estimator).__name__} does not know its classes yet: give classes=[...], "
                "all that any worker has, the same at every worker."
            )
        targets = np.array(sorted(set(classes)))
        named = {"classes": targets}
    before = estimator.get_params()
    if "learning_rate_init" in before:  # a network: its first weights are random and stay
        estimator.set_params(learning_rate_init=_STILL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the size of this batch
        estimator.partial_fit(np.zeros((len(targets), features), dtype), targets, **named)
    if "learning_rate_init" in before:
        estimator.set_params(learning_rate_init=before["learning_rate_init"])
        vars(estimator).pop("_optimizer", None)  # made for the other rate; it is made anew
    else:
        for array in weights(estimator).values():
            array[...] = 0.0
        estimator.t_ = 1.0  # the step count that its rate may depend on


def weights(estimator: Any) -> dict[str, NDArray[Any]]:
    """The arrays of a fitted estimator that travel, by name."""
    if all(hasattr(estimator, name) for name in LINEAR):
        found = {name: getattr(estimator, name) for name in LINEAR}
    elif all(hasattr(estimator, name) for name in NETWORK):
        found = {
            f"{name}.{layer}": array
            for name in NETWORK
            for layer, array in enumerate(getattr(estimator, name))
        }
    else:
        raise ConfigError(
            f"{type(estimator).__name__} has neither coef_ and intercept_ nor coefs_ and "
            "intercepts_: there are no weights that a server could average."
        )
    for name, array in found.items():
        if not (isinstance(array, np.ndarray) and array.dtype.kind == "f"):
            raise ConfigError(
                f"{name} of {type(estimator).__name__} is no array of floats: call densify(), or "
                "fit the estimator on dense data with the intercept."
            )
    return found


def _fitted(estimator: Any) -> bool:
    return hasattr(estimator, "coef_") or hasattr(estimator, "coefs_")


def _check_kind(estimator: Any) -> None:
    """Refuse what has no weights to average, or cannot go on from given ones."""
    kind, module = type(estimator).__name__, type(estimator).__module__
    if module.startswith((*xgboost.BOOSTERS, "sklearn.tree", "sklearn.ensemble")):
        xgboost.visit(None, estimator)
    if module.startswith("sklearn.naive_bayes"):
        raise ConfigError(
            f"{kind} keeps counts, means and variances of each class, which no average of changes "
            "gives: use SGDClassifier, or add up the counts of all workers yourself."
        )
    if module.startswith("sklearn.pipeline"):
        raise ConfigError(
            "A pipeline has no partial_fit: give its last step, and transform the data with the "
            "others before, the same at every worker."
        )
    if not hasattr(estimator, "partial_fit"):
        raise ConfigError(
            f"{kind} has no partial_fit, so it cannot go on from a model that it pulled: use one "
            "that has, such as SGDClassifier(loss='log_loss'), SGDRegressor, Perceptron or "
            "MLPClassifier with solver='adam' or 'sgd'."
        )
    if getattr(estimator, "average", False):
        raise ConfigError(
            f"{kind} with average={estimator.average} shows an average and goes on from other "
            "weights: set average=False."
        )


def _check_classes(estimator: Any, classes: Iterable[Any]) -> None:
    known, given = np.asarray(getattr(estimator, "classes_", ())).tolist(), sorted(set(classes))
    if known != given:
        raise ConfigError(
            f"{type(estimator).__name__} was fitted for the classes {known}, not for {given}."
        )


def _features(layout: Layout) -> int:
    """How many numbers a sample of the server's model has."""
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    if "coef_" in shapes:
        return shapes["coef_"][-1]
    if "coefs_.0" in shapes:
        return shapes["coefs_.0"][0]
    raise ConfigError(
        f"The server's model has tensors {', '.join(layout.names[:4])}, and no coef_ or coefs_.0: "
        "start a server with the first model of this estimator (write_first_model)."
    )
