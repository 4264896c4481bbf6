"""Your own torch module and loss, trained by workers in continuous time."""

import numpy as np
from torch import nn

import anarchic
from anarchic import ContinuousTime, Exponential, TorchTask, UniformSteps, Work, make_timetable

data = anarchic.data.load("digits")
parts = anarchic.data.dirichlet(data.y_train, workers=12, alpha=0.3, seed=0)
module = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.GroupNorm(4, 576), nn.Linear(576, 10)
)
task = TorchTask(module, data, parts, loss=nn.functional.cross_entropy)

process = ContinuousTime(Exponential(mean_idle_s=2.0), Work(UniformSteps(1, 10), step_s=0.1))
table = make_timetable(process, workers=12, m=4, rounds=25, rng=0)
work = [anarchic.LocalWork(lr=rate, batch=16) for rate in np.linspace(0.05, 0.2, 12)]

run = anarchic.simulate(anarchic.Experiment(task, anarchic.AfaCs(m=4, server_lr=3.0), table, work))
print(f"accuracy {run.accuracy:.3f} after {run.summary['virtual_s']:.0f} virtual seconds")
