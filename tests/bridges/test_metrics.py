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
from torchmetrics import F1Score, MeanSquaredError
from torchmetrics.functional.classification import multiclass_f1_score, multiclass_precision

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
