"""Functions of scikit-learn, and functions and objects of torchmetrics, are metrics as they are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torchmetrics")
import torch
from sklearn import metrics as sk
from torch import nn
from torchmetrics import AUROC, F1Score, MeanSquaredError
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    BinaryAveragePrecision,
    BinaryCalibrationError,
    MulticlassAUROC,
    MultilabelAUROC,
)
from torchmetrics.functional.classification import (
    auroc,
    binary_auroc,
    multiclass_f1_score,
    multiclass_precision,
)

from anarchic import AfaCd, Experiment, LocalWork, Metric, Sampler, TorchTask, make_task, simulate
from anarchic.data import Dataset, iid, load_digits
from anarchic.participation import ConstantSteps

METRICS = {
    "sk_f1": partial(sk.f1_score, average="macro"),
    "tm_f1": partial(multiclass_f1_score, num_classes=10, average="macro"),
    "object_f1": F1Score(task="multiclass", num_classes=10, average="macro"),
    "sk_precision": partial(sk.precision_score, average="macro", zero_division=0),
    "tm_precision": partial(multiclass_precision, num_classes=10, average="macro"),
    "sk_auc": Metric(partial(sk.roc_auc_score, multi_class="ovr"), of="probabilities"),
    "wrapped": Metric(
        lambda p, t: multiclass_f1_score(p, t, num_classes=10), of="outputs", tensors=True
    ),
    "top3": Metric(partial(sk.top_k_accuracy_score, k=3, labels=range(10)), of="outputs"),
}


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_libraries_agree_at_every_evaluation(model):
    data = load_digits()
    task = make_task(model, data, iid(data.y_train, 10, 0), metrics=METRICS)
    table = Sampler(10, 5, ConstantSteps(5)).timetable(0, 20)
    run = simulate(Experiment(task, AfaCd(5), table, LocalWork(lr=0.3), eval_every=10))
    for row in run.metrics:
        assert row["tm_f1"] == pytest.approx(row["sk_f1"], abs=1e-6)
        assert row["object_f1"] == pytest.approx(row["sk_f1"], abs=1e-6)
        assert row["wrapped"] == pytest.approx(row["sk_f1"], abs=1e-6)
        # It would be recall if targets and predictions changed places.
        assert row["tm_precision"] == pytest.approx(row["sk_precision"], abs=1e-6)
        assert row["top3"] >= row["accuracy"]
    assert run.metrics[-1]["sk_auc"] > 0.9
    assert run.metrics[-1]["sk_f1"] > 0.6 > run.metrics[0]["sk_f1"]


def test_they_judge_outputs_where_targets_are_no_classes():
    """Targets of floats, which a data set may not have elsewhere."""
    outputs, targets = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.5], [2.0]])
    assert Metric(MeanSquaredError())(outputs, targets) == pytest.approx(0.125)
    assert Metric(sk.mean_squared_error)(outputs, targets) == pytest.approx(0.125)
    assert Metric(sk.mean_absolute_error)(outputs.numpy(), targets.numpy()) == 0.25


def test_a_module_of_ones_own_has_them_too():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    data = Dataset("own", x[:60], y[:60], x[60:], y[60:], 2)
    balanced = {"balanced": sk.balanced_accuracy_score}
    task = TorchTask(nn.Linear(4, 2), data, [np.arange(60)], metrics=balanced)
    found = task.evaluate(task.init())
    predicted = task.module(torch.from_numpy(x[60:])).argmax(-1).numpy()
    assert found["balanced"] == pytest.approx(sk.balanced_accuracy_score(y[60:], predicted))


RNG = np.random.default_rng(1)
LOGITS = RNG.standard_normal((60, 2)).astype(np.float32)
BINARY = (LOGITS[:, 1] - LOGITS[:, 0] + RNG.standard_normal(60) > 0).astype(np.int64)
MARGIN = LOGITS[:, 1] - LOGITS[:, 0]  # one logit that says the same as the two
CHANCE = 1 / (1 + np.exp(-MARGIN))
SCORED = {
    "sk_auc": (sk.roc_auc_score, sk.roc_auc_score(BINARY, CHANCE)),
    "sk_ovr": (partial(sk.roc_auc_score, multi_class="ovr"), sk.roc_auc_score(BINARY, CHANCE)),
    "sk_precision": (sk.average_precision_score, sk.average_precision_score(BINARY, CHANCE)),
    "sk_brier": (sk.brier_score_loss, sk.brier_score_loss(BINARY, CHANCE)),
    "sk_log_loss": (sk.log_loss, sk.log_loss(BINARY, CHANCE)),
    "object": (BinaryAUROC(), sk.roc_auc_score(BINARY, CHANCE)),
    "task": (AUROC(task="binary"), sk.roc_auc_score(BINARY, CHANCE)),
    "function": (binary_auroc, sk.roc_auc_score(BINARY, CHANCE)),
    "partial": (partial(auroc, task="binary"), sk.roc_auc_score(BINARY, CHANCE)),
    "precision": (BinaryAveragePrecision(), sk.average_precision_score(BINARY, CHANCE)),
}


@pytest.mark.parametrize("of", [None, "probabilities"])
@pytest.mark.parametrize("name", SCORED)
def test_scores_of_two_classes_are_those_of_scikit_learn(name, of):
    function, expected = SCORED[name]
    metric = Metric(function, of=of)
    assert metric(LOGITS, BINARY) == pytest.approx(expected, abs=1e-5)
    assert metric(torch.tensor(LOGITS), torch.tensor(BINARY)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("shape", [(60,), (60, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_scores_of_one_logit_are_those_of_scikit_learn(name, shape, dtype):
    function, expected = SCORED[name]
    outputs, targets = MARGIN.reshape(-1, 1), BINARY.astype(dtype).reshape(shape)
    assert Metric(function)(outputs, targets) == pytest.approx(expected, abs=1e-5)
    tensors = torch.tensor(outputs), torch.tensor(targets)
    assert Metric(function, of="probabilities")(*tensors) == pytest.approx(expected, abs=1e-5)


def test_calibration_is_that_of_the_probability_of_class_1():
    own = BinaryCalibrationError()(torch.tensor(CHANCE), torch.tensor(BINARY))
    assert Metric(BinaryCalibrationError())(LOGITS, BINARY) == pytest.approx(float(own))
    right = ((MARGIN > 0) == BINARY).mean()
    for of in (None, "classes", "probabilities"):
        assert Metric(BinaryAccuracy(), of=of)(LOGITS, BINARY) == pytest.approx(right)


def test_more_classes_have_a_column_each_and_labels_a_sigmoid_each():
    outputs = RNG.standard_normal((50, 3)).astype(np.float32)
    targets = np.arange(50) % 3
    expected = sk.roc_auc_score(targets, torch.tensor(outputs).softmax(-1), multi_class="ovr")
    assert Metric(MulticlassAUROC(3))(outputs, targets) == pytest.approx(expected, abs=1e-5)
    ovr = Metric(partial(sk.roc_auc_score, multi_class="ovr"))
    assert ovr(outputs, targets) == pytest.approx(expected, abs=1e-5)
    several = RNG.integers(0, 2, (50, 3))
    expected = sk.roc_auc_score(several, outputs)
    assert Metric(sk.roc_auc_score)(outputs, several) == pytest.approx(expected, abs=1e-5)
    assert Metric(MultilabelAUROC(3))(outputs, several) == pytest.approx(expected, abs=1e-5)
