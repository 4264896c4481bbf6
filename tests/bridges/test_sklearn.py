"""Estimators of scikit-learn as workers, at a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Perceptron, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from anarchic.bridges.sklearn import prepare, visit, weights, write_first_model
from anarchic.errors import ConfigError
from tests.bridges.serving import INIT, await_version, two_workers
from tests.bridges.still import StillWorker
from tests.kinds.outcome import learnt

CLASSIFIERS = [
    lambda: SGDClassifier(loss="log_loss", random_state=0),
    lambda: Perceptron(random_state=0),
    lambda: MLPClassifier((32,), learning_rate_init=0.01, random_state=0),
]


def digits():
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    return x[:1500], y[:1500], x[1500:], y[1500:]


@pytest.mark.parametrize("make", CLASSIFIERS, ids=["sgd", "perceptron", "mlp"])
def test_two_classifiers_learn_together(make, tmp_path: Path):
    x, y, x_test, y_test = digits()
    first = make()
    write_first_model(tmp_path / INIT, first, features=64, classes=range(10))
    before = first.score(x_test, y_test)
    assert before < 0.3
    with two_workers(tmp_path) as workers:
        estimators = [make(), make()]
        for version in range(1, 8):
            for part, (worker, estimator) in enumerate(zip(workers, estimators, strict=True)):
                mine = (y % 2) == part  # one has the even digits, the other the odd ones
                with visit(worker, estimator, classes=range(10)) as v:
                    estimator.partial_fit(x[mine], y[mine])
                    v.samples = int(mine.sum())
            await_version(workers[0], version)
        newest = workers[0].layout.split(workers[0].pull().params)
    for name, array in weights(first).items():
        array[...] = newest[name]
    # Neither alone knows more than half of the digits.
    learnt(before, first.score(x_test, y_test), 0.6)


def test_two_regressors_learn_together(tmp_path: Path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3
    write_first_model(tmp_path / INIT, SGDRegressor(), features=3)
    with two_workers(tmp_path) as workers:
        estimators = [SGDRegressor(random_state=0), SGDRegressor(random_state=1)]
        for version in range(1, 6):
            for part, (worker, estimator) in enumerate(zip(workers, estimators, strict=True)):
                with visit(worker, estimator):
                    estimator.partial_fit(x[part::2], y[part::2])
            await_version(workers[0], version)
        params = workers[0].layout.split(workers[0].pull().params)
    assert params["coef_"] == pytest.approx([1.0, -2.0, 0.5], abs=0.2)


def test_preparing_a_network_does_not_train_it():
    one, other = (CLASSIFIERS[2]() for _ in range(2))
    prepare(one, features=64, classes=range(10))
    x, y, *_ = digits()
    other.set_params(learning_rate_init=1e-30).partial_fit(x, y, classes=range(10))
    for name, array in weights(one).items():
        np.testing.assert_array_equal(array, weights(other)[name], strict=True)
    before = one.coefs_[0].copy()
    one.partial_fit(x, y)
    assert np.abs(one.coefs_[0] - before).max() > 0.001  # at its own rate again


@pytest.mark.parametrize(
    ("estimator", "told"),
    [
        (GaussianNB(), "counts, means and variances"),
        (RandomForestClassifier(), "grows trees"),
        (LogisticRegression(), "no partial_fit.*SGDClassifier"),
        (MLPClassifier(solver="lbfgs"), "no partial_fit.*solver="),
        (SGDClassifier(average=True), "average=False"),
        (SGDClassifier(), "give classes="),
        (make_pipeline(SGDClassifier()), "its last step"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_cannot_be_averaged_is_refused_with_the_reason(estimator, told, tmp_path: Path):
    with pytest.raises(ConfigError, match=told):
        write_first_model(tmp_path / INIT, estimator, features=4)


def test_xgboost_is_refused_with_the_reason(tmp_path: Path):
    from anarchic.bridges import xgboost as bridge

    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier()
    with pytest.raises(ConfigError, match="XGBClassifier grows trees"):
        bridge.visit(None, model)
    with pytest.raises(ConfigError, match="XGBClassifier grows trees"):
        write_first_model(tmp_path / INIT, model, features=4, classes=[0, 1])


def test_the_model_of_another_library_is_refused():
    elsewhere = StillWorker({"weight": np.zeros((2, 2))})
    with pytest.raises(ConfigError, match="has tensors weight, and no coef_"):
        visit(elsewhere, SGDClassifier(), classes=[0, 1])
    fitted = SGDClassifier().partial_fit(np.zeros((2, 3)), [0, 1], classes=[0, 1])
    with pytest.raises(ConfigError, match=r"fitted for the classes \[0, 1\], not for \[0, 2\]"):
        visit(elsewhere, fitted, classes=[0, 2])


@pytest.mark.parametrize("make", [SGDClassifier, Perceptron, SGDRegressor])
def test_data_of_another_type_of_floats_are_told_with_remedies_that_work(make):
    """Linear estimators go on with the type that they were first fitted with."""
    x, y = np.eye(4, dtype=np.float32), np.arange(4) % 2
    classes = {} if make is SGDRegressor else {"classes": [0, 1]}
    server = StillWorker({"coef_": np.zeros((1, 4) if classes else 4), "intercept_": np.zeros(1)})
    told = r"weights as float64 .* x.astype\('float64'\), .* dtype='float32'"
    estimator = make()
    with pytest.raises(ConfigError, match=told), visit(server, estimator, **classes):
        estimator.partial_fit(x, y)
    with visit(server, estimator, **classes):  # the worker is free again
        estimator.partial_fit(x.astype("float64"), y)
    estimator = make()
    with visit(server, estimator, dtype="float32", **classes):
        estimator.partial_fit(x, y)
    assert len(server.pushed) == 2
