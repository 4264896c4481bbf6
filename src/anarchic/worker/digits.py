"""A task for trying things out: a part of the digits that come with the package."""

from __future__ import annotations

import re

from anarchic.data.digits import load_digits
from anarchic.data.partition import dirichlet
from anarchic.errors import ConfigError
from anarchic.worker.softmax import SoftmaxTask

ALPHA = 0.5  # of the Dirichlet split: each worker has many samples of some classes, few of others
BATCH = 32


def is_digits(spec: str) -> bool:
    """Whether this names a part of the digits, and not a module."""
    return re.fullmatch(r"digits(:\d.*)?", spec) is not None


def digits_task(spec: str) -> SoftmaxTask:
    """``digits:3/8`` is the third of eight label-skewed parts, the same for everybody.

    >>> digits_task("digits:3/8").layout.names
    ('bias', 'weight')
    """
    found = re.fullmatch(r"digits:(\d+)/(\d+)", spec)
    if found is None:
        raise ConfigError(f"A part of the digits is named as digits:3/8, 3 of 8; got {spec!r}.")
    number, workers = int(found[1]), int(found[2])
    if not 1 <= number <= workers:
        raise ConfigError(f"{spec}: workers count from 1 to {workers}, got {number}.")
    data = load_digits()
    part = dirichlet(data.y_train, workers, ALPHA, seed=0)[number - 1]
    return SoftmaxTask(data.x_train[part], data.y_train[part], data.classes, batch=BATCH)
