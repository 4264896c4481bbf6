"""A judge of softmax regression on the embedded digits, for demos and first runs.

``anarchic serve --evaluate anarchic.demo.judge:digits`` evaluates versions with it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anarchic.core.types import Snapshot
from anarchic.data.digits import load_digits


def digits(snapshot: Snapshot) -> dict[str, float]:
    """Accuracy and mean cross-entropy on the test digits."""
    x, y = _test_digits()
    scores = x @ snapshot.tensors["weight"].T + snapshot.tensors["bias"]
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    right = chances[np.arange(len(y)), y]
    return {
        "accuracy": float((scores.argmax(axis=1) == y).mean()),
        "loss": float(-np.log(right + 1e-9).mean()),
    }


@cache
def _test_digits() -> tuple[NDArray[Any], NDArray[Any]]:
    found = load_digits()
    return found.x_test.reshape(len(found.x_test), -1), found.y_test
