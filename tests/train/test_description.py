"""A run goes on only with the loss and the forward= that it began with."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

from anarchic.data import iid  # noqa: E402
from anarchic.train.description import described  # noqa: E402
from anarchic.train.torch_task import TorchTask  # noqa: E402
from tests.train.kinds import digits  # noqa: E402


def smoothed(by):
    def loss(outputs, y):
        return f.cross_entropy(outputs, y, label_smoothing=by)

    return loss


def recursive():
    def loss(outputs, y):
        return loss.inner(outputs, y)

    loss.inner = f.cross_entropy
    return loss


class Method:
    def loss(self, outputs, y):
        return f.cross_entropy(outputs, y)


LOSSES = {
    "function": lambda: f.cross_entropy,
    "another function": lambda: f.multi_margin_loss,
    "partial": lambda: partial(f.cross_entropy, label_smoothing=0.1),
    "another partial": lambda: partial(f.cross_entropy, label_smoothing=0.2),
    "module": nn.CrossEntropyLoss,
    "sum": lambda: nn.CrossEntropyLoss(reduction="sum"),
    "weights": lambda: nn.CrossEntropyLoss(weight=torch.ones(10)),
    "other weights": lambda: nn.CrossEntropyLoss(weight=torch.arange(10.0) + 1),
    "closure": lambda: smoothed(0.1),
    "another closure": lambda: smoothed(0.2),
    "lambda": lambda: lambda out, y: f.cross_entropy(out, y),
    "another lambda": lambda: lambda out, y: f.cross_entropy(2 * out, y),
    "method": lambda: Method().loss,
    "recursive": recursive,
}


def digest(**options):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return TorchTask(module, digits(), iid(digits().y_train, 4, 0), **options).digest()


def test_digests_tell_losses_apart():
    found = {name: digest(loss=make()) for name, make in LOSSES.items()}
    assert len({digest(), *found.values()}) == len(found) + 1
    assert found == {name: digest(loss=make()) for name, make in LOSSES.items()}


def test_digests_tell_forwards_apart():
    first = digest(forward=lambda module, x: module(x))
    assert first == digest(forward=lambda module, x: module(x))
    assert len({digest(), first, digest(forward=lambda module, x: module(2 * x))}) == 3


def test_the_digest_of_a_default_task_is_what_it_was():
    assert digest() == "f06e9d1b1f67b0a3da9ddbc700504a07a28bb6e6cc99d10d743ada73f9bad331"


@pytest.mark.slow
def test_a_description_is_the_same_in_another_process():
    here = [described(make()) for make in LOSSES.values()]
    code = (
        "from tests.train.test_description import *\n"
        "print([described(make()) for make in LOSSES.values()])"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(here)


def test_other_values_are_described():
    assert described(np.arange(3)) != described(np.arange(4))
    assert described({"b": 1, "a": 2}) == described({"a": 2, "b": 1})
    assert described(torch.ones(2)) != described(torch.ones(2).bfloat16())
    assert "0x" not in described([object(), Method, Method()])
