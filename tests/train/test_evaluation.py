"""Targets of every kind are learnt and measured."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.core.rules import AfaCd
from anarchic.data import Dataset, iid, load
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.experiment import Experiment
from anarchic.sim.simulate import simulate
from anarchic.train.backends import Batched, Loop
from anarchic.train.metrics import Metric
from anarchic.train.task import LocalWork, make_task

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

from anarchic.train.evaluation import evaluated  # noqa: E402
from anarchic.train.torch_task import TorchTask, cross_entropy  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)).astype(np.float32)
W = RNG.normal(size=(4, 3)).astype(np.float32)


def learnt(module, data, backend=None, lr=0.3, **settings):
    """Metrics of the first and of the last version."""
    torch.manual_seed(0)
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    task = TorchTask(module, data, iid(len(data.y_train), 4, 0), **settings)
    table = Sampler(4, 2, ConstantSteps(5)).timetable(0, 40)
    work = LocalWork(lr=lr, batch=16)
    run = simulate(Experiment(task, AfaCd(2, 5.0), table, work, backend=backend or Batched()))
    return run.metrics[0], run.metrics[-1]


def test_regression_on_floats_has_a_loss_and_no_accuracy():
    first, last = learnt(
        nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), Dataset.of(X, X @ W[:, 0]),
        loss=f.mse_loss, lr=0.03,
    )  # fmt: skip
    assert "accuracy" not in last
    assert first["loss"] > 0.3 > 0.01 > last["loss"]


def test_vectors_are_regressed_on():
    data = Dataset.of(X, X @ W, val=0.1)
    first, last = learnt(nn.Linear(4, 3), data, loss=f.mse_loss, lr=0.03)
    assert first["val_loss"] > 0.3 > 0.01 > last["val_loss"]


def test_several_labels_per_sample():
    loss = f.binary_cross_entropy_with_logits
    first, last = learnt(nn.Linear(4, 3), Dataset.of(X, X @ W > 0), loss=loss)
    assert first["loss"] > 0.5 > 0.25 > last["loss"]
    assert "accuracy" not in last


def next_tokens():
    """The next token is three more than the last, of eight."""
    tokens = (RNG.integers(8, size=(300, 1)) + 3 * np.arange(7)) % 8
    return Dataset.of(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("backend", [Loop(), Batched()])
def test_the_next_token_is_learnt_and_every_token_counts(backend):
    module = nn.Sequential(nn.Embedding(8, 16), nn.Linear(16, 8))
    data = next_tokens()
    assert (data.classes, data.y_train.shape[1:]) == (None, (6,))
    first, last = learnt(module, data, backend)
    assert first["accuracy"] < 0.5 < 0.95 < last["accuracy"]


def test_validation_is_measured_apart_from_the_test():
    digits = load("digits")
    data = Dataset.of(digits.x_train, digits.y_train, test=(digits.x_test, digits.y_test), val=0.1)
    found = {}
    for kind in ("numpy", "torch"):
        parts = iid(data.y_train, 4, 0)
        task = make_task("logistic", data, parts, augment=kind == "torch")
        found[kind] = task.evaluate(np.linspace(-1, 1, task.layout.dim).astype(np.float32))
    assert found["torch"] == pytest.approx(found["numpy"], rel=1e-4)
    assert list(found["numpy"]) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert found["numpy"]["val_loss"] != found["numpy"]["loss"]


def test_scores_may_be_in_the_second_dimension_as_torch_has_them():
    y = torch.tensor([[0, 1, 2], [2, 1, 0]])
    scores = f.one_hot(y, 4).float().movedim(-1, 1)  # (samples, classes, tokens)
    scores[0, :, 0] = torch.tensor([0.0, 1, 0, 0])  # one of six is wrong
    found = evaluated(zip(scores[:, None], y[:, None], strict=True), f.cross_entropy, {})
    assert found["accuracy"] == pytest.approx(5 / 6)
    assert found["loss"] == pytest.approx(f.cross_entropy(scores, y).item(), rel=1e-6)


def test_a_count_of_whole_numbers_has_no_accuracy():
    y = torch.tensor([3, 1])
    found = evaluated([(y[:, None] + 1.0, y)], lambda out, y: (out[:, 0] - y).abs().mean(), {})
    assert found == {"loss": 1.0}


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1])),
        nn.CrossEntropyLoss(reduction="sum"),
        lambda out, y: f.mse_loss(out, f.one_hot(y, 3).float()).sqrt(),
    ],
)
def test_a_loss_that_is_no_mean_is_that_of_all_samples(loss):
    outputs, y = torch.from_numpy(X[:, :3]), torch.from_numpy(np.arange(300) % 3)
    y[:100] = 0
    pairs = list(zip(outputs.split(70), y.split(70), strict=True))
    assert evaluated(pairs, loss, {})["loss"] == pytest.approx(float(loss(outputs, y)))
    assert len(pairs) > 1


@pytest.mark.parametrize("shape", [(5, 3, 3), (5, 3, 3, 3)])
def test_classes_are_where_the_loss_takes_them_when_the_shape_leaves_it_open(shape):
    y = torch.from_numpy(RNG.integers(3, size=(shape[0], *shape[2:])))
    last = f.one_hot(y, 3).float()
    metric = {"same": Metric(lambda predicted, targets: (predicted == targets).mean())}
    found = evaluated([(last.movedim(-1, 1), y)], f.cross_entropy, metric)
    assert found["accuracy"] == found["same"] == 1.0
    found = evaluated([(last, y)], cross_entropy, metric)
    assert found["accuracy"] == found["same"] == 1.0


def test_accuracy_of_workers_is_by_the_classes_of_the_loss():
    x = RNG.normal(size=(300, 4, 4)).astype(np.float32)
    data = Dataset.of(x, x.argmax(1))  # the class with the greatest score is right
    module = nn.Conv1d(4, 4, 1)
    with torch.no_grad():
        module.weight.copy_(torch.eye(4)[..., None])
        module.bias.zero_()
    task = TorchTask(module, data, iid(240, 4, 0), loss=f.cross_entropy, per_worker=True)
    assert task.evaluate(task.init())["accuracy"] == 1.0
    measure, values = task.evaluate_workers(task.init())
    assert (measure, values.tolist()) == ("accuracy", [1.0] * 4)
