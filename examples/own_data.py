"""Your own data, already divided among workers, and your own local rule."""

from dataclasses import dataclass

import numpy as np
from torch import nn

import anarchic

rng = np.random.default_rng(0)
site = rng.integers(8, size=2400)  # eight sites, each with its own instruments
x = rng.normal(size=(2400, 2)) + rng.normal(scale=0.5, size=(8, 2))[site]
y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)  # labels count from 0
x = x.astype(np.float32)  # inputs are ready for a model: scaled, in float32

data = anarchic.data.Dataset("sites", x[:2000], y[:2000], x[2000:], y[2000:], classes=2)
parts = [np.flatnonzero(site[:2000] == number) for number in range(8)]  # samples of each worker


@dataclass(frozen=True)
class WeightDecay(anarchic.Stateless):
    """x <- x - eta_L * (g + decay * x); written with + - * /, since x may be arrays or tensors."""

    decay: float

    def step(self, gradient, x, start, held):
        return gradient + self.decay * x


module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
task = anarchic.TorchTask(module, data, parts)
sampler = anarchic.Sampler(workers=8, m=4, steps=anarchic.UniformSteps(1, 10), max_staleness=4)
table = sampler.timetable(0, rounds=150)
rule = anarchic.AfaCs(m=4, server_lr=5.0, population=8)

for local in (anarchic.Sgd(), WeightDecay(0.002)):
    work = anarchic.LocalWork(rule=local, lr=0.1, batch=32)
    run = anarchic.simulate(anarchic.Experiment(task, rule, table, work))
    size = float(np.linalg.norm(run.params))
    print(f"{type(local).__name__:11} accuracy {run.accuracy:.3f}, norm of the model {size:.1f}")
