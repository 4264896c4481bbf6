"""Small tasks of every kind, for the backends to agree on."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.data import Dataset, iid, load, random_quadratics
from anarchic.train import task
from anarchic.train.quadratic import QuadraticTask

WORKERS = 5


def images(channels, size, augment="none"):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, channels, size, size)).astype(np.float32)
    y = rng.integers(0, 10, 60)
    return Dataset("images", x[:50], y[:50], x[50:], y[50:], 10, augment=augment)


def text():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 80, (60, 8)).astype(np.uint8), rng.integers(0, 80, 60)
    return Dataset("text", x[:50], y[:50], x[50:], y[50:], 80)


def make_task(name, dtype="float64"):
    if name == "quadratic":
        return QuadraticTask(random_quadratics(WORKERS, 7, noise=0.1))
    if name != "logistic":
        pytest.importorskip("torch")
    data = {
        "logistic": lambda: load("digits"),
        "mlp": lambda: load("digits"),
        "logistic-crops": lambda: images(3, 16, "crop-flip"),
        "cnn": lambda: images(3, 16, "crop-flip"),
        "lstm": text,
    }[name]()
    parts = iid(data.y_train, WORKERS, 0)
    return task.make_task(name.split("-")[0], data, parts, dtype=dtype)
