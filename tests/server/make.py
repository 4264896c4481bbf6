"""A small run in a store, and updates for it."""

from __future__ import annotations

import numpy as np

from anarchic import Layout, Update, wire
from anarchic.server.runs import begin
from anarchic.server.settings import RuleSettings
from anarchic.train.backends import Loop

LAYOUT = Layout.of({"bias": ((2,), "F32"), "weight": ((2, 3), "F32")})
DIM = LAYOUT.dim


def first_params():
    return np.linspace(-1, 1, DIM).astype(np.float32)


def begun(store, *, kept=None, **rules):
    about = {"kept": kept} if kept else {}
    return begin(store, RuleSettings(**rules), LAYOUT, first_params(), about)


def update(worker="ann", id="1", base_version=0, seed=0, **others):
    direction = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    settings = {"local_steps": 2, "local_lr": 0.1, "direction": direction, **others}
    return Update(worker, base_version, id=id, **settings)


def body(*given, run=None, loss=None, **others):
    made = update(*given, **others)
    return wire.encode_update(LAYOUT, made, worker=made.worker, run=run, loss=loss)


class Recording:
    """A backend that keeps what it computes."""

    def __init__(self):
        self.directions, self.extras = {}, {}

    def compute(self, task, lanes):
        results = Loop().compute(task, lanes)
        for lane in range(len(lanes)):
            key = int(lanes.worker[lane]), int(lanes.visit[lane])
            self.directions[key] = results.directions[lane]
            self.extras[key] = {name: each[lane] for name, each in results.extras.items()}
        return results
