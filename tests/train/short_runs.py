"""Tasks of modules, and short anarchic runs of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from anarchic import (
    AfaCd,
    Batched,
    Experiment,
    LocalWork,
    Sampler,
    Sgd,
    SharedVectors,
    TorchTask,
    UniformSteps,
)
from anarchic.data import iid
from anarchic.sim.engine import Engine
from tests.train.kinds import KINDS, WORKERS, digits

SGD = Sgd()


def made(make, data=None, **options):
    torch.manual_seed(0)
    data = digits() if data is None else data
    return TorchTask(make(), data, iid(data.y_train, WORKERS, 0), **options)


def task_of(name, **options):
    kind = KINDS[name]
    return made(kind.make, kind.data(), **kind.options, **options)


def walked(task, backend=None, rule=SGD, rounds=3, seed=5, server=None):
    table = Sampler(WORKERS, 2, UniformSteps(1, 3), max_staleness=3).timetable(3, rounds)
    server = AfaCd(2) if server is None else server
    if rule.shares:
        server = SharedVectors(server, names=rule.shares, population=WORKERS)
    work = LocalWork(rule, lr=0.05, batch=4)
    engine = Engine(Experiment(task, server, table, work, seed, backend or Batched()))
    while engine.version < rounds:
        engine.next_version()
    return engine.state.params


def difference(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def experiment(make, rule=SGD, server=None, **options):
    table = Sampler(WORKERS, 2, UniformSteps(1, 3), max_staleness=3).timetable(3, 9)
    work = LocalWork(rule, lr=0.05, batch=4)
    return Experiment(made(make, **options), server or AfaCd(2), table, work, seed=2)


def normed_and_dropped():
    layers = [nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(16, 10))
