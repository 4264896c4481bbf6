"""Small updates, and states as bytes."""

import json

import numpy as np

from anarchic import Update
from anarchic.core.saving import pack


def vector(*numbers, dtype=np.float64):
    return np.array(numbers, dtype)


def update(direction, worker="a", base_version=0, local_steps=1, local_lr=1.0, **others):
    direction = np.asarray(direction, others.pop("dtype", np.float64))
    return Update(worker, base_version, local_steps, local_lr, direction, **others)


def fold(rule, state, updates):
    for each in updates:
        state = rule.receive(state, each)
    return state


def dump(state):
    """Everything in a state, to be compared with ``==``; a copy, since a call consumes states."""
    arrays, numbers = pack(state)
    content = {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}
    return content, json.dumps(numbers, sort_keys=True)
