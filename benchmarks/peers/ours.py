"""The simulator: AFA-CD with ``server_lr = K``, which is FedAvg when nobody is late.

python -m benchmarks.peers.ours W1 150 RESULT.json compiled|plain
"""

from __future__ import annotations

import numpy as np
import torch

from anarchic import AfaCd, Experiment, LocalWork
from anarchic.core.types import Vector
from anarchic.data import Dataset
from anarchic.models import make
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.engine import Engine
from anarchic.sim.summary import software
from anarchic.train.logistic_task import LogisticTask
from anarchic.train.task import Task
from anarchic.train.torch_task import TorchTask
from benchmarks.peers.torch_work import import_lazily
from benchmarks.workloads import Clock, Held, Workload, asked, held, report


def main() -> None:
    workload, into, (loops,) = asked()
    dealt = held(workload)
    import_lazily()
    clock = Clock()
    task = task_of(workload, dealt, compiled=loops == "compiled")
    found = task.layout.split(train(workload, task, clock))
    report(into, clock, found, local_steps=workload.local_steps, versions=software())


def task_of(workload: Workload, dealt: Held, *, compiled: bool) -> Task:
    classes = int(dealt.classes)
    data = Dataset(workload.data, dealt.x, dealt.y, dealt.x_test, dealt.y_test, classes)
    parts = np.split(np.arange(len(dealt.y)), dealt.ends[:-1])
    if workload.model == "logistic":
        start = np.concatenate([dealt.start[name].reshape(-1) for name in ("bias", "weight")])
        return LogisticTask(data, parts, compiled=compiled, start=start)
    module = make(workload.model, data)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in dealt.start.items()})
    return TorchTask(module, data, parts)


def train(workload: Workload, task: Task, clock: Clock) -> Vector:
    """All rounds; the timetable is timed too, for others draw their workers as they go."""
    clock.mark()
    sampler = Sampler(workload.workers, workload.m, ConstantSteps(workload.steps))
    experiment = Experiment(
        task=task,
        rule=AfaCd(workload.m, server_lr=workload.steps),
        timetable=sampler.timetable(0, workload.rounds),
        work=LocalWork(lr=workload.lr, batch=workload.batch),
    )
    engine = Engine(experiment)
    with experiment.computing():
        while engine.version < workload.rounds:
            engine.next_version()
            clock.mark()
    return engine.state.params


if __name__ == "__main__":
    main()
