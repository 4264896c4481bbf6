"""Your own table with a column of owners, a part for validation, and a local rule of your own."""

from dataclasses import dataclass

import numpy as np
from torch import nn

import anarchic

rng = np.random.default_rng(0)
site = rng.integers(8, size=2400)  # eight hospitals, each with its own instruments
x = rng.normal(size=(2400, 2)) + rng.normal(scale=0.5, size=(8, 2))[site]
table = {  # a pandas or Polars frame is given in the same way
    "pressure": x[:, 0],
    "pulse": x[:, 1],
    "hospital": np.array([f"hospital {number}" for number in range(8)])[site],
    "diagnosis": np.where(x[:, 0] * x[:, 1] > 0, "ill", "well"),
}
columns = {"target": "diagnosis", "owner": "hospital"}
data = anarchic.data.Dataset.of(table, **columns, test=0.1, val=0.1, seed=0)
parts = anarchic.data.by_role(data)  # the samples of each worker: one worker per hospital


@dataclass(frozen=True)
class WeightDecay(anarchic.Stateless):
    """x <- x - eta_L * (g + decay * x); written with + - * /, since x may be arrays or tensors."""

    decay: float

    def step(self, gradient, x, start, held):
        return gradient + self.decay * x


module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, data.classes))
task = anarchic.TorchTask(module, data, parts)
sampler = anarchic.Sampler(workers=8, m=4, steps=anarchic.UniformSteps(1, 10), max_staleness=4)
timetable = sampler.timetable(0, rounds=150)
rule = anarchic.AfaCs(m=4, server_lr=5.0, population=8)

runs = {}
for local in (anarchic.Sgd(), WeightDecay(0.002)):
    work = anarchic.LocalWork(rule=local, lr=0.1, batch=32)
    run = runs[type(local).__name__] = anarchic.simulate(
        anarchic.Experiment(task, rule, timetable, work)
    )
    size = float(np.linalg.norm(run.params))
    chosen_by = run.metrics[-1]["val_accuracy"]
    print(f"{type(local).__name__:11} validation {chosen_by:.3f}, norm of the model {size:.1f}")

best = max(runs, key=lambda name: runs[name].metrics[-1]["val_accuracy"])  # never by test samples
print(f"{best} is chosen: accuracy {runs[best].accuracy:.3f} on the test samples")
